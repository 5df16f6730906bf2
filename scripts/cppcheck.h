/* Macros of libraries that cppcheck cannot see through; read by make lint only. */
#define json_array_foreach(a, i, v) for (i = 0; (v = json_array_get(a, i)); i++)
#define json_object_foreach(o, k, v) for (k = "", v = (o); v; v = 0)
#define json_object_foreach_safe(o, t, k, v) for (k = "", v = (o); v; v = 0)
