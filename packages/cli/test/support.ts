/**
 * The real control plane in this process, on a port of loopback, and the command line with its own
 * home, folder and terminal.
 */
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, request as requestTo } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll } from 'vitest';
import { type Api, createApi, PASSWORD } from '../../control-plane/test/api/harness.ts';
import { readConfig } from '../src/config.ts';
import type { Io } from '../src/io.ts';
import { run } from '../src/run.ts';

export const ADMIN = 'admin@example.com';
export { PASSWORD };

export type Served = { api: Api; url: string };

/** One control plane for all tests of a file: its start takes most of their time. */
export function serveOnce(given: Parameters<typeof createApi>[0] = {}): Served {
  const served: Partial<Served> = {};
  removeHomes();
  beforeAll(async () => {
    const api = await createApi(given);
    Object.assign(served, { api, url: await api.server.listen({ host: '127.0.0.1', port: 0 }) });
  }, 60_000);
  afterAll(() => served.api?.close());
  return served as Served;
}

const homes: string[] = [];
/** Call it once in a file that makes people: removes their homes. */
export const removeHomes = (): void =>
  afterAll(() => {
    for (const home of homes.splice(0)) rmSync(home, { recursive: true, force: true });
  });

export type Result = { code: number; out: string; err: string };
export type Person = {
  home: string;
  cwd: string;
  /** Runs one command. */
  berth(argv: readonly string[], given?: RunOptions): Promise<Result>;
};
export type RunOptions = {
  stdin?: string;
  env?: Record<string, string>;
  cwd?: string;
  terminal?: Partial<Io['terminal']>;
  pipes?: Io['pipes'];
  columns?: number;
  interrupted?: AbortSignal;
  onOut?: (text: string) => void;
  onErr?: (text: string) => void;
  sleep?: Io['sleep'];
  now?: Io['now'];
  monotonic?: Io['now'];
};

/** Standard streams for commands that use none of them as bytes. */
const noPipes: Io['pipes'] = {
  hasInput: () => false,
  read: () => () => undefined,
  write: async () => undefined,
  setRaw: () => undefined,
  size: () => null,
  onResize: () => () => undefined,
};

/** A person with an empty home. Nothing is read from the environment of the tests. */
export function person(): Person {
  const home = mkdtempSync(join(tmpdir(), 'berth-cli-'));
  homes.push(home);
  return {
    home,
    cwd: home,
    async berth(argv, given = {}) {
      let out = '';
      let err = '';
      const io: Io = {
        config: readConfig({ HOME: home, PATH: process.env['PATH'], ...given.env }),
        cwd: given.cwd ?? home,
        out(text) {
          out += text;
          given.onOut?.(text);
        },
        err(text) {
          err += text;
          given.onErr?.(text);
        },
        terminal: { in: false, out: false, err: false, ...given.terminal },
        columns: () => given.columns ?? 100,
        readStdin: async () => given.stdin ?? '',
        pipes: given.pipes ?? noPipes,
        interrupted: given.interrupted ?? new AbortController().signal,
        now: given.now ?? Date.now,
        monotonic: given.monotonic ?? (() => performance.now()),
        sleep:
          given.sleep ??
          ((ms, signal) =>
            sleep(ms, undefined, signal === undefined ? {} : { signal }).then(() => undefined)),
      };
      const code = await run(argv, io);
      return { code, out, err };
    },
  };
}

/** A person who has signed in by password. */
export async function signedIn(url: string): Promise<Person> {
  const who = person();
  const { code, err } = await who.berth(['login', url, '--email', ADMIN], {
    stdin: `${PASSWORD}\n`,
  });
  if (code !== 0) throw new Error(err);
  return who;
}

/**
 * Serves `url` at another address. The answer to the first POST whose path matches is lost: the
 * connection ends when the control plane has handled the request.
 */
export async function losesAnswers(
  url: string,
  path: RegExp,
): Promise<{ url: string; lost(): number; close(): void }> {
  let lost = 0;
  const server = createServer((request, response) => {
    const { method = 'GET', headers } = request;
    const forwarded = requestTo(new URL(request.url ?? '/', url), { method, headers }, (answer) => {
      if (method === 'POST' && lost === 0 && path.test(request.url ?? '')) {
        lost += 1;
        answer.resume();
        return void answer.on('end', () => request.socket.destroy());
      }
      response.writeHead(answer.statusCode ?? 502, answer.headers);
      answer.pipe(response);
    });
    forwarded.on('error', () => request.socket.destroy());
    request.pipe(forwarded);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    lost: () => lost,
    close() {
      server.close();
      server.closeAllConnections();
    },
  };
}
