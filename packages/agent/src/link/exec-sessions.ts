/**
 * Connects exec sessions, tunnels and the standard input of runs to the control plane. The answer to
 * a poll names the sessions that wait for this node; the agent opens a WebSocket for each, so no port
 * opens on the node.
 *
 * Behind a balancer, the WebSocket can reach a control plane without the client (409): the agent
 * connects again until it reaches the one with the client. A session whose connection ends is over,
 * and its command is ended.
 */
import { backoff } from '@berth/kit/backoff';
import type { Logger } from '@berth/kit/log';
import { messageOf } from '@berth/kit/message-of';
import {
  type AgentMessage,
  type AgentOrder,
  EXEC_CHUNK,
  EXEC_HIGH_WATER,
  EXEC_PROTOCOL,
  EXEC_ROUTES,
  execFrame,
  execMessage,
  MAX_EXEC_MESSAGE,
} from '@berth/wire/exec';
import { pathOf } from '@berth/wire/client';
import { type RawData, WebSocket } from 'ws';
import type { ExecContainers, ExecProcess, OnExecData } from '../engine/exec-session.ts';
import type { RunInputs } from '../engine/run-input.ts';
import { pause } from '../stopped.ts';

export type ExecSessionDeps = {
  baseUrl: string;
  headers: () => Record<string, string>;
  /** ALLOW_EXEC. The input of a run needs no permission of its own: see routes/exec.ts. */
  isAllowed: boolean;
  containers: ExecContainers;
  inputs: Pick<RunInputs, 'open'>;
  log: Logger;
  signal: AbortSignal;
};
export type ExecSessions = {
  /** `ids`: of the sessions that wait for this node, comma-separated; null: none. */
  waiting(ids: string | null): void;
};

/** Time in ms to reach the control plane with the client. */
const REACH_MS = 15_000;
const RETRY_MS = { min: 20, max: 500 };
const HANDSHAKE_MS = 10_000;
/** Maximum number of sessions of this node. */
const MOST = 200;
/** Maximum number of ids that are remembered, because a list can name a session again. */
const MAX_SEEN = 1_000;

export function createExecSessions(deps: ExecSessionDeps): ExecSessions {
  const seen = new Set<string>();
  const open = new Set<string>();
  return {
    waiting(ids) {
      if (ids === null) return;
      for (const id of ids.split(',')) {
        if (!/^[\w-]{1,64}$/.test(id) || seen.has(id) || open.size >= MOST) continue;
        seen.add(id);
        const [oldest] = seen;
        if (seen.size > MAX_SEEN && oldest !== undefined) seen.delete(oldest);
        open.add(id);
        void serve(deps, id)
          .catch((err: unknown) => deps.log.warn({ err, session: id }, 'exec session failed'))
          .finally(() => open.delete(id));
      }
    },
  };
}

async function serve(deps: ExecSessionDeps, id: string): Promise<void> {
  const socket = await reach(deps, id);
  if (socket === null) return;
  const onStop = (): void => socket.close(1001);
  deps.signal.addEventListener('abort', onStop, { once: true });
  try {
    await runSession(deps, id, socket);
  } finally {
    deps.signal.removeEventListener('abort', onStop);
    socket.close();
  }
}

/** Connects to the control plane with the client; null: the session has ended. */
async function reach({ baseUrl, headers, signal }: ExecSessionDeps, id: string) {
  const url = new URL(pathOf(EXEC_ROUTES.agentExec, { id }), baseUrl);
  url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
  const until = performance.now() + REACH_MS;
  for (let attempt = 0; ; attempt += 1) {
    const answer = await connect(url, headers());
    if (typeof answer !== 'number') return answer;
    if (answer !== 409 && answer !== 0 && answer < 500) return null;
    if (performance.now() > until || signal.aborted) return null;
    await pause(backoff(attempt, RETRY_MS), signal);
  }
}

/** Returns an open, paused WebSocket, or the status of the refusal; 0: no answer. */
const connect = (url: URL, headers: Record<string, string>): Promise<WebSocket | number> =>
  new Promise((resolve) => {
    const socket = new WebSocket(url, EXEC_PROTOCOL, {
      headers,
      handshakeTimeout: HANDSHAKE_MS,
      maxPayload: MAX_EXEC_MESSAGE,
      perMessageDeflate: false,
    });
    socket.on('unexpected-response', (request, response) => {
      response.resume();
      request.destroy();
      resolve(response.statusCode ?? 0);
    });
    socket.on('error', () => resolve(0));
    socket.on('open', () => {
      socket.pause();
      resolve(socket);
    });
  });

/** Resolves when the session has ended. */
function runSession(deps: ExecSessionDeps, id: string, socket: WebSocket): Promise<void> {
  return new Promise((resolve) => {
    let process: ExecProcess | null = null;
    let isOver = false;
    let hasExited = false;
    let hasOrder = false;
    const closing = new AbortController();
    /** Messages of the client that came with the order. */
    const early: [RawData, boolean][] = [];
    const send = (message: AgentMessage): void => {
      if (socket.readyState === socket.OPEN) socket.send(JSON.stringify(message));
    };
    const take = (to: ExecProcess, data: RawData, isBinary: boolean): void =>
      isBinary ? writeData(to, data, send) : react(to, (data as Buffer).toString());
    const end = (message: AgentMessage): void => {
      send(message);
      // A paused socket would not see the answer to its close.
      socket.resume();
      socket.close(1000);
    };
    async function begin(order: AgentOrder): Promise<void> {
      if (order.kind !== 'input' && !deps.isAllowed)
        return end({ type: 'error', message: 'this node does not allow it (ALLOW_EXEC)' });
      // A run can wait long for its image, and a paused socket does not see that its person leaves.
      if (order.kind !== 'input') socket.pause();
      try {
        const onData: OnExecData = (channel, bytes) => sendData(socket, process, channel, bytes);
        const started = await (order.kind === 'input'
          ? deps.inputs.open(order.run, closing.signal)
          : deps.containers.start(id, order, onData));
        process = started;
        if (isOver) return void started.stop();
        send({ type: 'ready' });
        socket.resume();
        for (const [data, isBinary] of early.splice(0)) take(started, data, isBinary);
        void started.outputEnded?.then(() => send({ type: 'eof' }));
        const code = await started.ended;
        hasExited = true;
        end({ type: 'exit', code });
      } catch (error) {
        end({ type: 'error', message: messageOf(error) });
      }
    }
    socket.on('message', (data, isBinary) => {
      if (process !== null) return take(process, data, isBinary);
      if (hasOrder) return void early.push([data, isBinary]);
      hasOrder = true;
      const order = isBinary ? null : execMessage((data as Buffer).toString());
      if (order?.type === 'start') void begin(order as unknown as AgentOrder);
      else end({ type: 'error', message: 'the control plane sent no order' });
    });
    socket.on('close', () => {
      isOver = true;
      closing.abort(new Error('the person has left'));
      // A command that has exited may have left children on purpose.
      const stopped = hasExited ? undefined : process?.stop();
      void Promise.resolve(stopped).finally(resolve);
    });
    socket.resume();
  });
}

/** Sends output, and pauses the command while too many bytes wait. */
function sendData(
  socket: WebSocket,
  process: ExecProcess | null,
  channel: number,
  bytes: Buffer,
): void {
  for (let at = 0; at < bytes.length; at += EXEC_CHUNK) {
    if (socket.readyState !== socket.OPEN) return;
    socket.send(execFrame(channel, bytes.subarray(at, at + EXEC_CHUNK)), () => {
      if (socket.bufferedAmount < EXEC_HIGH_WATER / 2) process?.resume();
    });
  }
  if (socket.bufferedAmount >= EXEC_HIGH_WATER) process?.pause();
}

/** Passes on input, and confirms it when the command has taken it. */
function writeData(
  process: ExecProcess,
  data: RawData,
  send: (message: AgentMessage) => void,
): void {
  const bytes = (data as Buffer).subarray(1);
  process.write(bytes, () => send({ type: 'taken', bytes: bytes.length }));
}

function react(process: ExecProcess, text: string): void {
  const message = execMessage(text);
  if (message?.type === 'eof') process.eof();
  if (message?.type === 'resize') process.resize(Number(message['rows']), Number(message['cols']));
}
