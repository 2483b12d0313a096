/**
 * Runs commands for people in containers of this node, and connects to their ports (docs/console.md).
 *
 * The engine cannot end a command: it would keep running after its person has left. So each command
 * has the variable BERTH_EXEC, and `stop` signals all processes of the container that have it.
 */
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { messageOf } from '@berth/kit/message-of';
import { type AgentOrder, EXEC_CHANNELS } from '@berth/wire/exec';
import { LABELS } from '@berth/wire/vocabulary';
import type { Docker } from './docker.ts';
import { type EngineClient, EngineError } from './engine-client.ts';
import { createFrameReader } from './log-frames.ts';
import type { NodeIds } from './node-ids.ts';

export type OnExecData = (channel: number, bytes: Buffer) => void;
/** A command or a connection that a person uses. */
export type ExecProcess = {
  /** `done` is called when the next bytes may be written. */
  write(bytes: Buffer, done: () => void): void;
  /** Ends the standard input. */
  eof(): void;
  resize(rows: number, cols: number): void;
  pause(): void;
  resume(): void;
  /** Resolves with the exit code after the last byte. Rejects with a sentence for the person. */
  ended: Promise<number>;
  /** Resolves when a tunnel has sent its last byte; it may still take some. */
  outputEnded?: Promise<void>;
  /** Ends the command with its children. */
  stop(): Promise<void>;
};
export type ExecContainers = {
  /** Rejects with a sentence for the person. */
  start(id: string, order: ContainerOrder, onData: OnExecData): Promise<ExecProcess>;
};

/** The standard input of runs has its own module (run-input.ts). */
export type ContainerOrder = Exclude<AgentOrder, { kind: 'input' }>;
type ExecOrder = Extract<AgentOrder, { kind: 'exec' }>;
type TunnelOrder = Extract<AgentOrder, { kind: 'tunnel' }>;

const ENGINE_MS = 15_000;
const CONNECT_MS = 10_000;
/** Time in ms between SIGHUP with SIGTERM and SIGKILL. */
const GRACE_MS = 3_000;
/** Time in ms for the engine to notice the end of a command whose streams have ended. */
const EXIT_MS = 5_000;
const MARKER = 'BERTH_EXEC';
/** Needs a shell, `tr` and `grep` in the image: without them a command ends with its input only. */
const SIGNAL = `for e in /proc/[0-9]*/environ; do
  p=\${e#/proc/}; p=\${p%/environ}
  if tr '\\0' '\\n' <"$e" 2>/dev/null | grep -qx "${MARKER}=$1"; then
    for s in $2; do kill -s "$s" "$p" 2>/dev/null; done
  fi
done`;

export function createExecContainers(
  engine: EngineClient,
  docker: Pick<Docker, 'inspect' | 'runInside'>,
  ids: Pick<NodeIds, 'all'>,
  { publishedHost }: { publishedHost: () => Promise<string> },
): ExecContainers {
  /** Refuses containers of others: the engine runs more than those of this node. */
  async function own(ref: string) {
    const container = await docker.inspect(ref, AbortSignal.timeout(ENGINE_MS));
    if (container === null || !ids.all().includes(container.labels[LABELS.node] ?? ''))
      throw new Error('the container does not exist any more');
    if (container.state !== 'running')
      throw new Error(`the container does not run: it is ${container.state}`);
    return container;
  }
  return {
    async start(id, order, onData) {
      const container = await own(order.container);
      return order.kind === 'exec'
        ? startCommand({ engine, docker }, id, { ...order, container: container.id }, onData)
        : openTunnel(
            order.published && container.hostPort !== null
              ? { host: await publishedHost(), port: container.hostPort }
              : { host: await addressOf(engine, container.id), port: order.port },
            order,
            onData,
          );
    },
  };
}

type CommandDeps = { engine: EngineClient; docker: Pick<Docker, 'runInside'> };

async function startCommand(
  { engine, docker }: CommandDeps,
  id: string,
  { container, command, tty, rows, cols }: ExecOrder,
  onData: OnExecData,
): Promise<ExecProcess> {
  const { Id: exec } = await engine.call('POST /containers/{id}/exec', {
    params: { id: container },
    body: {
      AttachStdin: true,
      AttachStdout: true,
      AttachStderr: true,
      Tty: tty,
      Env: [`${MARKER}=${id}`, ...(tty ? ['TERM=xterm-256color'] : [])],
      Cmd: command,
    },
    timeoutMs: ENGINE_MS,
  });
  const socket = await engine
    .hijack('POST /exec/{id}/start', {
      params: { id: exec },
      body: { Detach: false, Tty: tty },
      timeoutMs: ENGINE_MS,
    })
    .catch((error: unknown) => {
      throw error instanceof EngineError ? new Error(error.reason) : error;
    });
  const resize = (h: number, w: number): void =>
    void engine
      .call('POST /exec/{id}/resize', { params: { id: exec }, query: { h, w } })
      // The command may have ended already.
      .catch(() => undefined);
  if (tty && rows !== null && cols !== null) resize(rows, cols);
  const reader = createFrameReader((bytes, stream) => onData(EXEC_CHANNELS[stream], bytes));
  const read = tty ? (bytes: Buffer) => onData(EXEC_CHANNELS.stdout, bytes) : reader.add;
  return {
    ...pipeOf(socket, read),
    resize,
    ended: closed(socket).then(() => exitCodeOf(engine, exec)),
    async stop() {
      socket.destroy();
      await signalAll(docker, container, id);
    },
  };
}

/** Reads the exit code. The engine notices the end a little later than the streams do. */
async function exitCodeOf(engine: EngineClient, id: string): Promise<number> {
  const until = performance.now() + EXIT_MS;
  for (;;) {
    const { Running, ExitCode } = await engine
      .call('GET /exec/{id}/json', { params: { id }, timeoutMs: ENGINE_MS })
      .catch((error: unknown) => {
        throw error instanceof EngineError
          ? new Error('the container ended, which ends the session')
          : error;
      });
    if (Running !== true && typeof ExitCode === 'number') return ExitCode;
    if (performance.now() > until)
      throw new Error('the command closed its output and keeps running in the container');
    await sleep(50);
  }
}

async function signalAll(
  docker: Pick<Docker, 'runInside'>,
  container: string,
  id: string,
): Promise<void> {
  const send = (signals: string): Promise<unknown> =>
    docker
      .runInside(container, ['sh', '-c', SIGNAL, 'sh', id, signals], {
        timeoutMs: ENGINE_MS,
        signal: AbortSignal.timeout(ENGINE_MS),
      })
      // The container may have ended too.
      .catch(() => undefined);
  await send('HUP TERM');
  await sleep(GRACE_MS);
  await send('KILL');
}

async function openTunnel(
  { host, port }: { host: string; port: number },
  order: TunnelOrder,
  onData: OnExecData,
): Promise<ExecProcess> {
  // Half-open: each side ends its own direction.
  const socket: Socket = connect({ host, port, allowHalfOpen: true });
  try {
    await once(socket, 'connect', { signal: AbortSignal.timeout(CONNECT_MS) });
  } catch (error) {
    socket.destroy();
    throw new Error(`port ${order.port} of the container does not answer: ${messageOf(error)}`, {
      cause: error,
    });
  }
  socket.setNoDelay(true);
  return {
    ...pipeOf(socket, (bytes) => onData(EXEC_CHANNELS.stdout, bytes)),
    resize: () => undefined,
    outputEnded: new Promise((resolve) => socket.once('end', resolve)),
    // Both directions have ended.
    ended: new Promise((resolve) => socket.once('close', () => resolve(0))),
    async stop() {
      socket.destroy();
    },
  };
}

/** Returns the container's address in its network, for a port that it does not publish. */
async function addressOf(engine: EngineClient, id: string): Promise<string> {
  const { NetworkSettings } = await engine.call('GET /containers/{id}/json', {
    params: { id },
    timeoutMs: ENGINE_MS,
  });
  const address = Object.values(NetworkSettings?.Networks ?? {})
    .map((network) => network.IPAddress)
    .find((one) => one !== undefined && one !== '');
  if (address === undefined) throw new Error('the container has no address on this node');
  return address;
}

/** Returns the parts of an ExecProcess that any connection has. `read` gets the bytes of the engine. */
export function pipeOf(socket: Duplex, read: (bytes: Buffer) => void) {
  socket.on('data', read);
  socket.on('error', () => undefined);
  return {
    write(bytes: Buffer, done: () => void): void {
      if (socket.destroyed || socket.writableEnded) return done();
      socket.write(bytes, () => done());
    },
    eof: () => void socket.end(),
    pause: () => void socket.pause(),
    resume: () => void socket.resume(),
  };
}

/** Resolves after the last byte. */
const closed = (socket: Duplex): Promise<void> =>
  new Promise((resolve) => {
    socket.once('end', () => resolve());
    socket.once('close', () => resolve());
  });
