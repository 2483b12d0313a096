/**
 * Stands between one agent and its engine. A test can stop the agent at a verb, to catch it exactly
 * between two steps.
 */
import { mkdtempSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import {
  createServer,
  request,
  type IncomingMessage,
  type OutgoingHttpHeaders,
  type ServerResponse,
} from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { waitFor } from '@berth/testbed/wait';

export type Verb = 'run' | 'update' | 'stop' | 'ps';
type When = 'before' | 'after';
export type EngineShim = {
  /** Environment for the agent. */
  env: { DOCKER_HOST: string };
  /** `before`: the engine does not get the call while held; `after`: its answer is held back. */
  hold(when: When, verb: Verb): void;
  /** Every call of the verb fails with this message. */
  fail(verb: Verb, complaint: string): void;
  reached(when: When, verb: Verb): Promise<void>;
  /** Removes every hold and failure. */
  clear(): void;
  /** The number of calls in progress whose method, path and query match. */
  inProgress(pattern: RegExp): number;
  stop(): Promise<void>;
};

/** The calls before and after which a verb of the docker command does its work. */
const CALLS: Record<Verb, Record<When, RegExp>> = {
  run: { before: /^POST \/containers\/create$/, after: /^POST \/containers\/[^/]+\/start$/ },
  update: both(/^POST \/containers\/[^/]+\/update$/),
  stop: both(/^POST \/containers\/[^/]+\/stop$/),
  ps: both(/^GET \/containers\/json$/),
};
function both(pattern: RegExp): Record<When, RegExp> {
  return { before: pattern, after: pattern };
}

type Hold = {
  when: When;
  pattern: RegExp;
  /** Null: the call waits. */
  complaint: string | null;
  isReached: boolean;
  cleared: PromiseWithResolvers<void>;
};
type State = { target: string; holds: Hold[]; open: Set<string> };

/** `host`: DOCKER_HOST of the engine, a unix socket. */
export function startEngineShim(host: string): EngineShim {
  const state: State = { target: host.replace('unix://', ''), holds: [], open: new Set() };
  // A short path: the kernel refuses socket paths of more than about 100 characters.
  const dir = mkdtempSync(join(tmpdir(), 'berth-shim-'));
  const path = join(dir, 'engine.sock');
  const server = createServer((call, answer) => void serve(state, call, answer));
  server.listen(path);
  const add = (when: When, verb: Verb, complaint: string | null): void => {
    const cleared = Promise.withResolvers<void>();
    state.holds.push({ when, pattern: CALLS[verb][when], complaint, isReached: false, cleared });
  };
  return {
    env: { DOCKER_HOST: `unix://${path}` },
    hold: (when, verb) => add(when, verb, null),
    fail: (verb, complaint) => add('before', verb, complaint),
    async reached(when, verb) {
      const pattern = CALLS[verb][when];
      const isReached = (): boolean =>
        state.holds.some(
          (hold) => hold.pattern === pattern && hold.when === when && hold.isReached,
        );
      await waitFor(`the agent is ${when} docker ${verb}`, isReached, {
        deadlineMs: 45_000,
        intervalMs: 10,
      });
    },
    clear() {
      for (const hold of state.holds.splice(0)) hold.cleared.resolve();
    },
    inProgress: (pattern) => [...state.open].filter((call) => pattern.test(call)).length,
    async stop() {
      server.closeAllConnections();
      await new Promise<void>((resolve) => server.close(() => resolve()));
      await rm(dir, { recursive: true, force: true });
    },
  };
}

let calls = 0;

async function serve(state: State, call: IncomingMessage, answer: ServerResponse): Promise<void> {
  const { pathname, search } = new URL(call.url ?? '', 'http://engine');
  const name = `${call.method} ${pathname.replace(/^\/v[\d.]+/, '')}`;
  const entry = `${name}${search} #${(calls += 1)}`;
  state.open.add(entry);
  answer.on('close', () => state.open.delete(entry));
  const before = holdAt(state, 'before', name);
  if (before !== null) {
    before.isReached = true;
    if (before.complaint === null) await before.cleared.promise;
    refuse(answer, before.complaint ?? 'held by a test');
    return;
  }
  const forwarded = request({
    socketPath: state.target,
    method: call.method,
    path: call.url,
    headers: call.headers,
  });
  // An engine that is away: the agent loses its connection too.
  forwarded.on('error', () => answer.destroy());
  answer.on('close', () => forwarded.destroy());
  forwarded.on('response', (response) => void passBack(state, name, response, answer));
  call.pipe(forwarded);
}

async function passBack(
  state: State,
  name: string,
  response: IncomingMessage,
  answer: ServerResponse,
): Promise<void> {
  const after = holdAt(state, 'after', name);
  if (after !== null) {
    after.isReached = true;
    await after.cleared.promise;
  }
  const headers: OutgoingHttpHeaders = { ...response.headers };
  delete headers['transfer-encoding'];
  delete headers['connection'];
  answer.writeHead(response.statusCode ?? 502, headers);
  answer.flushHeaders();
  response.on('error', () => answer.destroy());
  response.pipe(answer);
}

const holdAt = (state: State, when: When, name: string): Hold | null =>
  state.holds.find((hold) => hold.when === when && hold.pattern.test(name)) ?? null;

function refuse(answer: ServerResponse, message: string): void {
  answer.writeHead(500, { 'content-type': 'application/json' });
  answer.end(JSON.stringify({ message }));
}
