/**
 * Exec sessions, tunnels and the standard input of runs: routes, and the messages on their
 * WebSockets.
 *
 *   person ──▶ POST …/exec (ticket) ──▶ WebSocket ──▶ control plane ◀── WebSocket ◀── agent ──▶ container
 *
 * A binary message is one byte for the channel and then data. A text message is a JSON object: the
 * person sends ClientMessage, the control plane sends AgentOrder to the agent once, and the agent
 * sends AgentMessage. The control plane passes on all other messages as they are.
 */
import { type Static, Type } from 'typebox';
import { ByName, ById, type Route } from './route.ts';
import { Count, Port } from './project.ts';

/** Agents with this capability know exec sessions. */
export const CAN_EXEC = 'exec';
/** Agents report this capability too if ALLOW_EXEC is true. */
export const EXEC_ALLOWED = 'exec-allowed';

/**
 * Header of the answer to a poll of tasks: the ids of the sessions that wait for this node,
 * comma-separated; absent if there are none.
 */
export const EXEC_HEADER = 'x-exec-sessions';

/** Subprotocol of both WebSockets. */
export const EXEC_PROTOCOL = 'berth.exec.v1';
/**
 * A client sends its ticket as a second subprotocol, `berth.ticket.<ticket>`: a browser can send no
 * header, and addresses are written to the logs of proxies.
 */
export const TICKET_PROTOCOL = 'berth.ticket.';

export const EXEC_CHANNELS = { stdin: 0, stdout: 1, stderr: 2 } as const;
/** Maximum bytes of one message, so that sessions share a connection's memory fairly. */
export const MAX_EXEC_MESSAGE = 256 * 1024;
/** Bytes of data that a sender puts into one message. */
export const EXEC_CHUNK = 64 * 1024;
/**
 * A client sends at most so many bytes more than the agent has confirmed with `taken`. Without this,
 * an end that waits for a slow command would not notice that the other end has left.
 */
export const EXEC_WINDOW = 1_048_576;
/** A sender pauses while so many bytes wait at the socket. */
export const EXEC_HIGH_WATER = 1_048_576;

const TerminalSize = Type.Integer({ minimum: 1, maximum: 10_000 });
export const ExecCreate = Type.Object(
  {
    command: Type.Array(Type.String({ maxLength: 32_768 }), {
      minItems: 1,
      maxItems: 200,
      description: 'program and arguments; no shell reads them',
    }),
    process: Type.Optional(Type.String({ maxLength: 63, description: 'default: web' })),
    instance: Type.Optional({
      ...Count,
      minimum: 1,
      description: 'number of the instance; default: the first one that serves',
    }),
    tty: Type.Optional(
      Type.Boolean({ description: 'true: a terminal, whose output has one stream' }),
    ),
    rows: Type.Optional(TerminalSize),
    cols: Type.Optional(TerminalSize),
  },
  { additionalProperties: false },
);
export type ExecCreate = Static<typeof ExecCreate>;

export const TunnelCreate = Type.Object(
  { port: Type.Optional({ ...Port, description: 'default: `container_port` of the project' }) },
  { additionalProperties: false },
);

export const ExecTicket = Type.Object({
  ticket: Type.String({ description: 'valid for one connection within 30 s' }),
  url: Type.String({ description: 'address of the WebSocket' }),
});
export type ExecTicket = Static<typeof ExecTicket>;

export type ClientMessage = { type: 'resize'; rows: number; cols: number } | { type: 'eof' };
export type AgentOrder = { type: 'start' } & (
  | {
      kind: 'exec';
      container: string;
      command: string[];
      tty: boolean;
      rows: number | null;
      cols: number | null;
    }
  /** `published`: the container's port is the one that it publishes. */
  | { kind: 'tunnel'; container: string; port: number; published: boolean }
  /** The standard input of a run. It has no output: runs store theirs. */
  | { kind: 'input'; run: string }
);
export type AgentMessage =
  | { type: 'ready' }
  | { type: 'eof' }
  | { type: 'taken'; bytes: number }
  | { type: 'exit'; code: number }
  | { type: 'error'; message: string };
/** The last message that a client gets: an AgentMessage, or why the control plane ended. */
export type EndMessage = Extract<AgentMessage, { type: 'exit' | 'error' }>;

export const EXEC_ROUTES = {
  execProject: {
    method: 'POST',
    path: '/api/projects/:id/exec',
    who: 'developer',
    scope: 'project',
    summary: 'Get a ticket to run a command in a container that runs',
    params: ByName,
    body: ExecCreate,
    status: 201,
    location: '/api/projects/:id',
    answer: ExecTicket,
  },
  tunnelProject: {
    method: 'POST',
    path: '/api/projects/:id/tunnel',
    who: 'developer',
    scope: 'project',
    summary: 'Get a ticket for one connection to a port of a container that runs',
    params: ByName,
    body: TunnelCreate,
    status: 201,
    location: '/api/projects/:id',
    answer: ExecTicket,
  },
  openExec: {
    method: 'GET',
    path: '/api/exec/:id',
    who: 'public',
    scope: 'none',
    summary:
      'Open the WebSocket of a ticket, with the subprotocols `berth.exec.v1` and ' +
      '`berth.ticket.<ticket>` (docs/console.md)',
    params: ById,
    status: 101,
  },
  agentExec: {
    method: 'GET',
    path: '/api/agent/exec/:id',
    who: 'agent',
    scope: 'none',
    summary: 'Open the WebSocket of an exec session or tunnel that waits for this node',
    params: ById,
    status: 101,
  },
} as const satisfies Record<string, Route>;

/** Returns a binary message. */
export function execFrame(channel: number, data: Uint8Array): Uint8Array {
  const frame = new Uint8Array(data.length + 1);
  frame[0] = channel;
  frame.set(data, 1);
  return frame;
}

/** Parses a text message; null if it is not a JSON object with a `type`. */
export function execMessage(text: string): ({ type: string } & Record<string, unknown>) | null {
  try {
    const message: unknown = JSON.parse(text);
    return typeof message === 'object' && message !== null && 'type' in message
      ? (message as { type: string })
      : null;
  } catch {
    return null;
  }
}
