/**
 * The observations of clients, agents, engines and proxies in one run, in the order in which they made them: an append-only list that
 * invariants.ts judges. The simulator keeps it in memory; real processes append JSON lines, one file each.
 *
 * `at` is when it was known and `sent`, where something was asked for, when the question left: what was asked for after an
 * answer had come is later than it, everything else happened at the same time. Both by one clock (one machine, or the simulator's).
 */
import { appendFileSync, readFileSync } from 'node:fs';

/** An agent's right to report: the lease token, or anything that stands for it. null: none was quoted. */
type Lease = string | null;
type Asked = { sent: number };

/** The limits that the checker holds against the time in which a control plane served, in ms. `slack`: what a gap may count for. */
export type Deadlines = { queue: number; route: number; build: number; deploy: number; slack: number };

export type Happening =
  /** The limits that stood, first of all. */
  | { type: 'began'; lease_ms: number; deadlines?: Deadlines }
  /** A control plane serves from now on, or does not (killed, stalled). */
  | { type: 'serving'; name: string; up: boolean }
  /** A commit about a deployment: its next state, or `published`. `code`: of the error it failed with. */
  | { type: 'moved'; deployment: string; to: string; code: string | null }
  /** A deployment was requested and the answer said yes. */
  | (Asked & { type: 'accepted'; project: string; deployment: string; key: string | null })
  /** A project of which no two versions may ever run at once (`recreate`). */
  | { type: 'single_writer'; project: string }
  | (Asked & { type: 'cancel_accepted'; deployment: string })
  /** Somebody is about to ask for the deletion: from here on it may be gone. */
  | { type: 'deleting'; what: 'project' | 'node'; id: string }
  /** The answer that a client got about a deployment; `missing`: 404. */
  | (Asked & { type: 'read'; project: string; deployment: string; state: string; node: string | null })
  | (Asked & { type: 'claimed'; task: string; attempt: number; lease: string })
  | (Asked & { type: 'renewed'; task: string; lease: string })
  /** Before it is sent: its answer may be lost while its effect is not. `address`: host:port of what was started. */
  | {
      type: 'reporting';
      task: string;
      kind: string;
      project: string;
      deployment: string;
      lease: Lease;
      status: string;
      address: string | null;
    }
  /** A report that was answered with yes; `content` is equal for equal reports. */
  | (Asked & { type: 'reported'; task: string; kind: string; deployment: string; lease: Lease; status: string; content: string })
  /** An agent is about to say that it sees this container of ours at this address. */
  | { type: 'observing'; node: string; project: string; deployment: string; address: string }
  /** `task`: a retire or deploy task. `contract`: a contract-only agent replaces the container itself. `outside`: engine or person. */
  | {
      type: 'container';
      change: 'started' | 'moved' | 'stopped' | 'removed';
      cause: 'task' | 'contract' | 'outside';
      node: string;
      container: string;
      project: string;
      deployment: string;
      address: string | null;
    }
  /** The routes that a proxy serves from now on: project -> host:port. */
  | { type: 'routed'; proxy: string; routes: Record<string, string> }
  /** A request from outside, and the deployment that answered it. */
  | (Asked & { type: 'served'; project: string; deployment: string })
  /** The control plane gave up on a lease. */
  | { type: 'taken_away'; task: string; lease: Lease; why: string }
  /** A measured count and its limit. */
  | { type: 'gauge'; name: string; value: number; bound: number }
  /** The lines of a deployment's story, counted by kind. */
  | { type: 'story'; deployment: string; kinds: Record<string, number> }
  /** Something that no error of the table stands for. */
  | { type: 'internal_error'; message: string }
  /** Faults have stopped and the time that everything may take has passed; what was read and seen last is how it ended. */
  | { type: 'ended' };

export type HistoryEvent = Happening & { at: number };
export type History = { record(happening: Happening): void };

export type MemoryHistory = History & { readonly events: HistoryEvent[] };

export function memoryHistory(now: () => number = Date.now): MemoryHistory {
  const events: HistoryEvent[] = [];
  return { events, record: (happening) => void events.push({ at: now(), ...happening }) };
}

/** One JSON line each, written before `record` returns, so that a recorder killed with -9 has lost nothing. */
export function historyFile(path: string, now: () => number = Date.now): History {
  return { record: (happening) => appendFileSync(path, `${JSON.stringify({ at: now(), ...happening })}\n`) };
}

/** Merges the files of several recorders. A line that was cut off by the death of its recorder is left out. */
export function readHistory(paths: readonly string[]): HistoryEvent[] {
  const events = paths.flatMap((path) =>
    readFileSync(path, 'utf8')
      .split('\n')
      // The text after the last line break was never finished.
      .slice(0, -1)
      .map((line) => JSON.parse(line) as HistoryEvent),
  );
  // Stable: what one recorder wrote in one millisecond stays in its order.
  return events.sort((a, b) => a.at - b.at);
}
