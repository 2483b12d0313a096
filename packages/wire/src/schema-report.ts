/**
 * The output of `berth schema`: the facts about a database of any version that `berth upgrade
 * --check` needs.
 */

/** A step of the database schema. `needed`: older versions refuse a database with this step. */
export type SchemaStep = { name: string; needed: boolean };

export type DatabaseState = {
  engine: 'sqlite' | 'postgres';
  /** Address of the database without password. */
  database: string;
  /**
   * All steps that the database has; `needed` lists the steps that a version of Berth must know.
   */
  applied: string[];
  needed: string[];
  nodes: { name: string; role: string; agent_version: string | null; last_seen_at: number }[];
  open_deployments: number;
  /**
   * Control planes that use the database now, as pid and host, or as address and number of
   * connections.
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
    /** Version of pg_dump; '' if not installed, null if not needed. */
    tool: string | null;
  };
};
