/**
 * Passes the messages of one session between the WebSockets of its client and of its agent. Output
 * waits for the client: the agent is not read while too many bytes wait. Input is limited by what
 * the agent has taken (EXEC_WINDOW).
 */
import {
  type AgentOrder,
  EXEC_HIGH_WATER,
  EXEC_WINDOW,
  type EndMessage,
  execMessage,
} from '@berth/wire/exec';
import { isExitCode } from '@berth/wire/run-payload';
import type { RawData, WebSocket } from 'ws';

export type Relay = {
  hasAgent(): boolean;
  /** Adds the agent and sends its order. */
  join(agent: WebSocket, order: AgentOrder): void;
  /** Ends the session, and tells the client why. */
  end(message: EndMessage): void;
  ping(): void;
  /** Bytes of data from the client, and to it. */
  bytes(): { up: number; down: number };
  /** Monotonic time in ms of the last byte of data in either direction. */
  activeAt(): number;
};

/** Time in ms for the closing handshake. */
const CLOSE_MS = 10_000;
const MAX_TEXT = 4_096;
/** Bytes from the client that can wait for the agent in this process. */
const MOST_WAITING = 8 * EXEC_WINDOW;

type State = {
  client: WebSocket;
  agent: WebSocket | null;
  up: number;
  down: number;
  /** Bytes of the client that the agent has not confirmed. */
  unconfirmed: number;
  activeAt: number;
  hasEnded: boolean;
  onEnd: (message: EndMessage | null) => void;
};

/**
 * Begins with the paused socket of a client, which is read when the agent has joined. `onEnd` is
 * called once; null: the client left.
 */
export function createRelay(
  client: WebSocket,
  { onEnd }: { onEnd: (message: EndMessage | null) => void },
): Relay {
  const state: State = {
    client,
    agent: null,
    up: 0,
    down: 0,
    unconfirmed: 0,
    activeAt: performance.now(),
    hasEnded: false,
    onEnd,
  };
  client.on('close', () => end(state, null));
  client.on('error', () => undefined);
  return {
    hasAgent: () => state.agent !== null,
    join(agent, order) {
      state.agent = agent;
      agent.on('error', () => undefined);
      agent.on('close', () =>
        end(state, {
          type: 'error',
          message: 'the agent of the node left, which ends the session; nothing is resumed',
        }),
      );
      agent.on('message', (data, isBinary) => fromAgent(state, data, isBinary));
      agent.send(JSON.stringify(order));
      client.on('message', (data, isBinary) => fromClient(state, data, isBinary));
      for (const socket of [agent, client]) socket.resume();
    },
    end: (message) => end(state, message),
    ping() {
      for (const socket of [state.client, state.agent])
        if (socket !== null && socket.readyState === socket.OPEN) socket.ping();
    },
    bytes: () => ({ up: state.up, down: state.down }),
    activeAt: () => state.activeAt,
  };
}

function fromClient(state: State, data: RawData, isBinary: boolean): void {
  const { agent } = state;
  if (agent === null || state.hasEnded) return;
  // The window counts data only, and a client can send messages without data.
  if (agent.bufferedAmount > MOST_WAITING)
    return end(state, {
      type: 'error',
      message: 'the client sent messages too fast for the agent of the node; start it again',
    });
  if (isBinary) {
    const size = sizeOf(data);
    state.up += size;
    state.unconfirmed += size;
    state.activeAt = performance.now();
    if (state.unconfirmed > 2 * EXEC_WINDOW)
      return end(state, {
        type: 'error',
        message: `the client sent more than ${EXEC_WINDOW} bytes that were not taken yet`,
      });
    return agent.send(data, { binary: true });
  }
  const message = textOf(data);
  if (message?.type === 'eof') agent.send('{"type":"eof"}');
  if (message?.type === 'resize' && isSize(message['rows']) && isSize(message['cols'])) {
    const { rows, cols } = message;
    agent.send(JSON.stringify({ type: 'resize', rows, cols }));
  }
}

function fromAgent(state: State, data: RawData, isBinary: boolean): void {
  const { agent, client } = state;
  if (agent === null || state.hasEnded) return;
  if (isBinary) {
    state.down += sizeOf(data);
    state.activeAt = performance.now();
    return pass(agent, client, data, true);
  }
  const message = textOf(data);
  if (message?.type === 'ready' || message?.type === 'eof')
    return pass(agent, client, JSON.stringify({ type: message.type }), false);
  if (message?.type === 'taken' && Number.isInteger(message['bytes'])) {
    const bytes = message['bytes'] as number;
    state.unconfirmed = Math.max(0, state.unconfirmed - bytes);
    return pass(agent, client, JSON.stringify({ type: 'taken', bytes }), false);
  }
  if (message?.type === 'exit')
    return end(
      state,
      isExitCode(message['code'])
        ? { type: 'exit', code: message['code'] }
        : { type: 'error', message: 'the agent reported no valid exit code' },
    );
  if (message?.type === 'error')
    return end(state, { type: 'error', message: String(message['message']).slice(0, 1_000) });
}

/** Sends the message, and stops reading `from` while too many bytes wait at `to`. */
function pass(from: WebSocket, to: WebSocket, data: RawData | string, binary: boolean): void {
  if (to.readyState !== to.OPEN) return;
  to.send(data, { binary }, () => {
    if (from.isPaused && to.bufferedAmount < EXEC_HIGH_WATER / 2) from.resume();
  });
  if (to.bufferedAmount >= EXEC_HIGH_WATER) from.pause();
}

function end(state: State, message: EndMessage | null): void {
  if (state.hasEnded) return;
  state.hasEnded = true;
  if (message !== null && state.client.readyState === state.client.OPEN)
    state.client.send(JSON.stringify(message));
  for (const socket of [state.client, state.agent]) if (socket !== null) close(socket);
  state.onEnd(message);
}

/** Closes the socket after all of its messages, at the latest when the other end does not answer. */
function close(socket: WebSocket): void {
  if (socket.readyState === socket.CLOSED) return;
  socket.resume();
  socket.close(1000);
  const late = setTimeout(() => socket.terminate(), CLOSE_MS).unref();
  socket.once('close', () => clearTimeout(late));
}

const isSize = (value: unknown): boolean =>
  Number.isInteger(value) && (value as number) > 0 && (value as number) <= 10_000;

/** Returns the bytes of data in a message, without the byte of its channel. */
const sizeOf = (data: RawData): number => {
  const size = Array.isArray(data)
    ? data.reduce((sum, part) => sum + part.length, 0)
    : data.byteLength;
  return Math.max(0, size - 1);
};

const textOf = (data: RawData) => {
  const text = (data as Buffer).toString();
  return text.length > MAX_TEXT ? null : execMessage(text);
};
