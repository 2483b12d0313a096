/**
 * The output of `berth schema`: what `berth upgrade --check` needs to know about a database of any
 * version.
 */

/** A step of the database schema. `needed`: earlier versions refuse a database with this step. */
export type SchemaStep = { name: string; needed: boolean };

export type DatabaseState = {
  engine: 'sqlite' | 'postgres';
  /** Contains no password. */
  database: string;
  /** All steps that the database has, and those that a version must know. */
  applied: string[];
  needed: string[];
  nodes: { name: string; role: string; agent_version: string | null; last_seen_at: number }[];
  open_deployments: number;
  /**
   * Control planes that use the database now: pid and host, or address and number of connections.
   */
  control_planes: string[];
};

export type SchemaReport = DatabaseState & {
  version: string;
  oldest_agent: string;
  /** All steps that this version knows. */
  schema: SchemaStep[];
  snapshot: {
    rule: 'required' | 'try' | 'off';
    folder: string;
    bytes: number;
    needed: number;
    free: number;
    /** Version of pg_dump, '' if there is none; null: not needed. */
    tool: string | null;
  };
};
