/* schema.h - the tables, as the steps that lead to them.
 *
 * schema_steps[n] takes version n to n + 1. A released step is never changed; a change of the tables is a new step. Records are JSON
 * under a table's name and a key: what is looked for by anything else is in memory. Events are rows, because they are read by range. */
#ifndef SPACE_STORE_SCHEMA_H
#define SPACE_STORE_SCHEMA_H

#define SCHEMA_APPLICATION_ID 0x53504143 /* "SPAC" */

static const char *const schema_steps[] = {
	"CREATE TABLE migration(version INTEGER PRIMARY KEY, at_ns INTEGER NOT NULL, program TEXT NOT NULL);"
	"CREATE TABLE record(tbl TEXT NOT NULL, key TEXT NOT NULL, body TEXT NOT NULL, PRIMARY KEY(tbl, key)) WITHOUT ROWID;"
	"CREATE TABLE event(seq INTEGER PRIMARY KEY AUTOINCREMENT, at_ns INTEGER NOT NULL, tenant TEXT NOT NULL, "
	"sandbox TEXT NOT NULL, type TEXT NOT NULL, body TEXT NOT NULL);"
	"CREATE INDEX event_sandbox ON event(sandbox, seq);"
	"CREATE INDEX event_tenant ON event(tenant, seq)",
};

#define SCHEMA_VERSION ((int)(sizeof(schema_steps) / sizeof(schema_steps[0])))

#endif
