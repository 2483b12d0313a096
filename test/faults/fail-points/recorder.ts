/**
 * What was seen of `app` from outside, as a history for `@berth/testbed/invariants`: what the client was told, what the engine
 * says happened to containers, and the story and log that the deployment keeps. The engine's and the story's times are exact,
 * so they are read after a row; what the client is told is asked for all the time.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Happening, HistoryEvent } from '@berth/testbed/history';
import { check } from '@berth/testbed/invariants';
import { ApiError, UnreachableError } from '@berth/wire/client';
import type { World } from '../../e2e/world.ts';
import type { Query } from './database.ts';

export type Recorder = {
  record(happening: Happening, at?: number): void;
  /** Ends the row's reading, adds what happened since the row before, and says what of all that may not be. */
  judge(): Promise<string[]>;
  /** Asks from now on. */
  watch(): void;
};

const EVERY_MS = 50;
const CHANGES: Record<string, 'started' | 'stopped' | 'removed'> = { start: 'started', stop: 'stopped', destroy: 'removed' };

/** No answer, or one that says to come again: a process that starts or ends. */
export const isAway = (error: unknown): boolean => error instanceof UnreachableError || (error instanceof ApiError && error.status === 503);

export function createRecorder(world: World, project: string, query: Query): Recorder {
  const history: HistoryEvent[] = [];
  const record: Recorder['record'] = (happening, at = Date.now()) => void history.push({ at, ...happening });
  const told = new Map<string, string>();
  const said = new Set<string>();
  let since = Date.now();
  let ending = new AbortController();
  let watching: Promise<void> = Promise.resolve();

  async function readAll(evenUnchanged: boolean): Promise<void> {
    const sent = Date.now();
    const { items } = await world.berth.api.call('listDeployments', { query: { project_id: project, limit: 5 } });
    for (const d of items) {
      if (!evenUnchanged && told.get(d.id) === d.status) continue;
      told.set(d.id, d.status);
      record({ type: 'read', sent, project, deployment: d.id, state: d.status, node: d.node_id });
    }
  }

  /** `answers at HOST:PORT` and `asking http://HOST:PORT/`: where the agent said that it is. */
  const addressIn = (text: unknown): string | null => /(?:answers at |asking http:\/\/)([^/\s;]+:\d+)/.exec(String(text))?.[1] ?? null;

  async function readEngine(until: number): Promise<void> {
    const bounds = ['--since', String(since / 1000), '--until', String(until / 1000)];
    const filters = ['--filter', 'type=container', '--filter', `label=berth.project=${project}`];
    const { stdout } = await world.engine.docker(['events', ...bounds, ...filters, '--format', '{{json .}}']);
    const addresses = new Map(
      query(`select deployment_id, text from log_lines where text like 'asking http://%'`).map((l) => [
        l['deployment_id'],
        addressIn(l['text']),
      ]),
    );
    for (const line of stdout.split('\n').filter((l) => l !== '')) {
      const { Action, Actor, timeNano } = JSON.parse(line) as {
        Action: string;
        Actor: { ID: string; Attributes: Record<string, string> };
        timeNano: number;
      };
      const change = CHANGES[Action];
      const deployment = Actor.Attributes['berth.deployment'] ?? '';
      const node = Actor.Attributes['berth.node'] ?? '';
      if (change === undefined) continue;
      const address = addresses.get(deployment) ?? null;
      record({ type: 'container', change, cause: 'task', node, container: Actor.ID, project, deployment, address }, timeNano / 1e6);
    }
  }

  function readStories(): void {
    const of = `in (select id from deployments where project_id = '${project}') and at >= ${since}`;
    for (const line of query(`select deployment_id, at, text from log_lines where text like 'asking http://%' and deployment_id ${of}`)) {
      const address = addressIn(line['text']);
      const at = Number(line['at']);
      if (address !== null) record({ type: 'observing', node: '', project, deployment: String(line['deployment_id']), address }, at);
    }
    for (const event of query(
      `select deployment_id, at, message from deployment_events where kind = 'route_published' and deployment_id ${of}`,
    )) {
      const address = addressIn(event['message']);
      // From the switch at the latest the proxy was seen to serve it; what it is told before that may be late.
      const [seen] = query(`select at from deployment_events where deployment_id = '${event['deployment_id']}' and kind = 'running'`);
      if (address !== null && seen !== undefined)
        record({ type: 'routed', proxy: 'proxy', routes: { [project]: address } }, Number(seen['at']) - 1);
    }
    const stories = new Map<string, Record<string, number>>();
    for (const row of query(
      `select deployment_id, kind, count(*) n from deployment_events where deployment_id ${of} group by deployment_id, kind`,
    ))
      stories.set(String(row['deployment_id']), { ...stories.get(String(row['deployment_id'])), [String(row['kind'])]: Number(row['n']) });
    for (const [deployment, kinds] of stories) {
      for (const task of query(`select id, kind, status from tasks where report is not null and deployment_id = '${deployment}'`)) {
        const about = {
          task: String(task['id']),
          kind: String(task['kind']),
          project,
          deployment,
          lease: '',
          status: String(task['status']),
        };
        record({ type: 'reporting', ...about, address: null });
      }
      record({ type: 'story', deployment, kinds });
    }
  }

  return {
    record,
    watch() {
      ending = new AbortController();
      const { signal } = ending;
      watching = (async () => {
        while (!signal.aborted) {
          await readAll(false).catch((error: unknown) => {
            // It is away at the moment: that is what these rows are about.
            if (!isAway(error)) record({ type: 'internal_error', message: String(error) });
          });
          await sleep(EVERY_MS);
        }
      })();
    },
    async judge() {
      ending.abort();
      await watching;
      await readAll(true);
      const until = Date.now();
      await readEngine(until);
      readStories();
      since = until;
      record({ type: 'ended' });
      const fresh = check(history.toSorted((a, b) => a.at - b.at))
        .map((violation) => `${violation.invariant}: ${violation.message}`)
        .filter((text) => !said.has(text));
      // Once: what one row broke must not fail all that follow.
      for (const text of fresh) said.add(text);
      return fresh;
    },
  };
}
