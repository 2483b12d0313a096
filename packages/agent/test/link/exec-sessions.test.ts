/** The agent's end of exec sessions, with a control plane and containers of the test. */
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { silentLogger } from '@berth/kit/log';
import { EXEC_CHANNELS, EXEC_PROTOCOL, execFrame } from '@berth/wire/exec';
import { waitFor } from '@berth/testbed/wait';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { type WebSocket, WebSocketServer } from 'ws';
import type { ExecContainers, OnExecData } from '../../src/engine/exec-session.ts';
import { createExecSessions } from '../../src/link/exec-sessions.ts';

const ORDER = { type: 'start', kind: 'exec', container: 'c1', command: ['cat'], tty: false };

let server: Server;
let baseUrl: string;
/** Statuses of the next answers; then WebSockets are opened. */
let refusals: number[];
let secrets: unknown[];
let opened: { socket: WebSocket; texts: string[]; data: [number, string][]; isClosed: boolean }[];
let started: {
  onData: OnExecData;
  taken: string[];
  end(code: number): void;
  stopped: number;
}[];
let containers: ExecContainers;
/** The input of runs: the ids of the runs, and why their person left. */
let inputs: { run: string; left: unknown }[];
const ending = new AbortController();

beforeEach(async () => {
  refusals = [];
  secrets = [];
  opened = [];
  started = [];
  const sockets = new WebSocketServer({ noServer: true, handleProtocols: () => EXEC_PROTOCOL });
  server = createServer();
  server.on('upgrade', (request, socket, head) => {
    secrets.push(request.headers['x-agent-secret']);
    const status = refusals.shift();
    if (status !== undefined)
      return socket.end(`HTTP/1.1 ${status} No\r\ncontent-length: 0\r\n\r\n`);
    sockets.handleUpgrade(request, socket, head, (webSocket) => {
      const seen = {
        socket: webSocket,
        texts: [],
        data: [],
        isClosed: false,
      } as (typeof opened)[0];
      opened.push(seen);
      webSocket.on('close', () => (seen.isClosed = true));
      webSocket.on('message', (data, isBinary) => {
        const bytes = data as Buffer;
        if (isBinary) seen.data.push([bytes[0] ?? -1, bytes.subarray(1).toString()]);
        else seen.texts.push(bytes.toString());
      });
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  baseUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  inputs = [];
  containers = {
    async start(_, __, onData) {
      const { promise, resolve } = Promise.withResolvers<number>();
      const one = { onData, taken: [] as string[], end: resolve, stopped: 0 };
      started.push(one);
      return {
        write(bytes, done) {
          one.taken.push(bytes.toString());
          done();
        },
        eof: () => void one.taken.push('EOF'),
        resize: (rows, cols) => void one.taken.push(`${rows}x${cols}`),
        pause: () => undefined,
        resume: () => undefined,
        ended: promise,
        async stop() {
          one.stopped += 1;
        },
      };
    },
  };
});
afterEach(() => {
  for (const { socket } of opened) socket.terminate();
  server.close();
});

const sessions = (isAllowed = true) =>
  createExecSessions({
    baseUrl,
    headers: () => ({ 'x-agent-secret': 'own' }),
    isAllowed,
    containers,
    inputs: {
      open(run, signal) {
        const one = { run, left: null as unknown };
        inputs.push(one);
        if (run === 'ready') return containers.start('', ORDER as never, () => undefined);
        return new Promise((_, reject) =>
          signal.addEventListener('abort', () => reject((one.left = signal.reason) as Error)),
        );
      },
    },
    log: silentLogger(),
    signal: ending.signal,
  });
const first = async () => {
  await waitFor('a WebSocket', () => opened.length > 0);
  return opened[0] as (typeof opened)[0];
};

it('connects again until it reaches the control plane with the client, and passes on both ways', async () => {
  refusals = [409, 503, 409];
  const all = sessions();
  all.waiting('one');
  all.waiting('one');
  const seen = await first();
  expect(secrets).toEqual(['own', 'own', 'own', 'own']);
  // Input that comes together with the order is not lost.
  seen.socket.send(JSON.stringify(ORDER));
  seen.socket.send(execFrame(EXEC_CHANNELS.stdin, Buffer.from('in')));
  seen.socket.send('{"type":"resize","rows":5,"cols":9}');
  seen.socket.send('{"type":"eof"}');
  await waitFor('the input', () => started[0]?.taken.length === 3);
  expect(started[0]?.taken).toEqual(['in', '5x9', 'EOF']);
  started[0]?.onData(EXEC_CHANNELS.stdout, Buffer.from('out'));
  started[0]?.onData(EXEC_CHANNELS.stderr, Buffer.from('err'));
  started[0]?.end(3);
  await waitFor('the end', () => seen.isClosed);
  expect(seen.data).toEqual([
    [EXEC_CHANNELS.stdout, 'out'],
    [EXEC_CHANNELS.stderr, 'err'],
  ]);
  expect(seen.texts).toEqual([
    '{"type":"ready"}',
    '{"type":"taken","bytes":2}',
    '{"type":"exit","code":3}',
  ]);
  expect(opened).toHaveLength(1);
  // Children that a command left on purpose stay.
  expect(started[0]?.stopped).toBe(0);
});

it('ends the command when the connection ends', async () => {
  sessions().waiting('one');
  const { socket } = await first();
  socket.send(JSON.stringify(ORDER));
  await waitFor('the command', () => started.length > 0);
  socket.terminate();
  await waitFor('its end', () => started[0]?.stopped === 1);
});

it('tells why a command did not start, and that this node does not allow it', async () => {
  containers = { start: () => Promise.reject(new Error('no such file: psql')) };
  sessions().waiting('one');
  const seen = await first();
  seen.socket.send(JSON.stringify(ORDER));
  await waitFor('the end', () => seen.isClosed);
  expect(seen.texts).toEqual(['{"type":"error","message":"no such file: psql"}']);

  opened = [];
  sessions(false).waiting('two');
  const refused = await first();
  refused.socket.send(JSON.stringify(ORDER));
  await waitFor('the end', () => refused.isClosed);
  expect(refused.texts[0]).toContain('ALLOW_EXEC');
});

it('passes on the input of a run also without ALLOW_EXEC, and notices that its person left', async () => {
  sessions(false).waiting('one');
  const seen = await first();
  seen.socket.send('{"type":"start","kind":"input","run":"ready"}');
  seen.socket.send(execFrame(EXEC_CHANNELS.stdin, Buffer.from([0, 255, 10])));
  seen.socket.send('{"type":"eof"}');
  await waitFor('the input', () => started[0]?.taken.length === 2);
  started[0]?.end(0);
  await waitFor('the end', () => seen.isClosed);
  expect(seen.texts).toEqual([
    '{"type":"ready"}',
    '{"type":"taken","bytes":3}',
    '{"type":"exit","code":0}',
  ]);

  opened = [];
  sessions(false).waiting('two');
  const leaving = await first();
  // The image of the run is still being pulled.
  leaving.socket.send('{"type":"start","kind":"input","run":"pulls"}');
  await waitFor('the run', () => inputs.length === 2);
  leaving.socket.terminate();
  await waitFor('the end of the wait', () => inputs[1]?.left !== null);
  expect(inputs.map(({ run }) => run)).toEqual(['ready', 'pulls']);
});

it('gives up a session that has ended', async () => {
  refusals = [404];
  sessions().waiting('gone');
  await waitFor('the request', () => secrets.length === 1);
  sessions().waiting(null);
  expect(opened).toEqual([]);
});
