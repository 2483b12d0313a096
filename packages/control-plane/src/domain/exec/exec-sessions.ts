/** Exec sessions, tunnels and the standard input of runs: their records, and who may open them. */
import type { AgentOrder } from '@berth/wire/exec';
import type { Role } from '@berth/wire/vocabulary';
import type { ProjectRecord } from '../platform/records.ts';
import { DomainError } from '../platform/errors.ts';

export type ExecKind = 'exec' | 'tunnel' | 'input';
/** A credential without its secret, which is checked again while the session is open. */
export type ExecCredential = { user_id: string } & (
  | {
      kind: 'session';
      hash: string;
      origin: { kind: 'device_token' | 'gateway_session'; id: string } | null;
    }
  | { kind: 'api_token'; id: string; name: string }
);
/** Names for people. */
export type ExecPlace = { project: string; process: string; number: number; node: string };
export type ExecRecord = {
  id: string;
  ticket_hash: string;
  kind: ExecKind;
  project_id: string;
  node_id: string;
  agent_order: AgentOrder;
  credential: ExecCredential;
  place: ExecPlace;
  /** The ticket expires then, by the uptime clock. */
  expires_at: number;
  /** When the ticket was used; null: not yet. */
  used_at: number | null;
};

/**
 * Rows live for seconds: from the ticket until the agent has connected. All times are on the uptime
 * clock.
 */
export type ExecSessionStore = {
  /** Also removes old rows. Throws too_many_requests. */
  create(record: ExecRecord, uptime: number): Promise<void>;
  get(id: string): Promise<ExecRecord | null>;
  /** Uses the ticket. Returns false if it was used before or has expired. */
  use(id: string, uptime: number): Promise<boolean>;
  /** Returns the sessions whose ticket was used after `since` and whose agent has not connected. */
  waiting(since: number): Promise<{ id: string; node_id: string }[]>;
  remove(id: string): Promise<void>;
};

/** Throws if this role may not have a session of this kind in the project. */
export function checkSession(
  kind: ExecKind,
  project: Pick<ProjectRecord, 'name' | 'allow_exec' | 'exec_role'>,
  role: Role,
): void {
  if (kind !== 'input') return checkExec(project, role);
  // The right to start a run includes its input.
  if (role === 'viewer')
    throw new DomainError('forbidden', 'the input of a run requires the role developer or admin');
}

/** Throws forbidden or exec_off if this role may not open sessions of the project. */
export function checkExec(
  project: Pick<ProjectRecord, 'name' | 'allow_exec' | 'exec_role'>,
  role: Role,
): void {
  if (role !== 'admin' && !(role === 'developer' && project.exec_role === 'developer'))
    throw new DomainError(
      'forbidden',
      `exec and tunnels require the role admin${
        project.exec_role === 'developer' ? ' or developer' : ''
      } in this project; your role is ${role}`,
    );
  if (!project.allow_exec)
    throw new DomainError(
      'exec_off',
      `${project.name} does not allow exec and tunnels; an admin switches them on: berth project ` +
        `edit ${project.name} --allow-exec`,
    );
}
