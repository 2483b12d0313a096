/**
 * Records the history of one project from outside, for `@berth/testbed/invariants`: a client's
 * reads, the agents' requests and answers (`@berth/testbed/agent-tap` writes them into the same
 * history), the proxies' configuration, the engines' container events, and the story of each
 * deployment. Times of engines and stories are exact, so those events are sorted in when a row is
 * judged. The reads are repeated all the time.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Engine } from '@berth/testbed/engine-handle';
import type { Happening, HistoryEvent, MemoryHistory } from '@berth/testbed/history';
import { check } from '@berth/testbed/invariants';
import { type Client, ApiError, UnreachableError } from '@berth/wire/client';
import { type ContainerEvent, followContainers } from './container-events.ts';
import type { Query } from './database.ts';

export type Recorder = {
  record(happening: Happening, at?: number): void;
  /** Starts reading. */
  watch(): void;
  /** Stops reading, adds the events since the previous row, and returns the violations. */
  judge(): Promise<string[]>;
  /** Returns the kinds of events in the history. */
  kinds(): Set<HistoryEvent['type']>;
  /** Attributes container changes during `play` to the outside, not to a task. */
  fromOutside<T>(play: () => Promise<T>): Promise<T>;
  /**
   * The database was restored from a backup: earlier reads, accepted deployments and container
   * changes no longer count.
   */
  databaseRestored(): Promise<void>;
  stop(): Promise<void>;
};

export type Sources = {
  history: MemoryHistory;
  api: Client;
  /** Address of the proxies' configuration. */
  configUrl: string;
  project: { id: string; name: string };
  engines: readonly Engine[];
  query: Query;
  leaseMs: number;
};

const EVERY_MS = 50;
/** Events that a restored database does not know. */
const LOST_BY_RESTORE: ReadonlySet<HistoryEvent['type']> = new Set([
  'accepted',
  'cancel_accepted',
  'read',
  'reported',
  'story',
  'container',
]);
/** Finds the address in the story's line `answers at HOST:PORT`. */
const addressIn = (text: unknown): string | null =>
  /answers at ([^/\s;]+:\d+)/.exec(String(text))?.[1] ?? null;

/** No answer, or 503: the process is starting or ending. */
export const isUnavailable = (error: unknown): boolean =>
  error instanceof UnreachableError || (error instanceof ApiError && error.status === 503);

export function createRecorder({
  history,
  api,
  configUrl,
  project,
  engines,
  query,
  leaseMs,
}: Sources): Recorder {
  const record: Recorder['record'] = (happening, at = Date.now()) =>
    void history.events.push({ at, ...happening });
  const lastRead = new Map<string, string>();
  const reported = new Set<string>();
  const outside: { from: number; to: number }[] = [];
  let since = Date.now();
  let handed = '';
  let ending = new AbortController();
  let watching: Promise<void> = Promise.resolve();
  const followed = engines.map((engine) => ({
    hostIp: engine.hostIp,
    ...followContainers(engine, project.id),
  }));
  record({ type: 'began', lease_ms: leaseMs });

  async function readAll(evenUnchanged: boolean): Promise<void> {
    const sent = Date.now();
    const { items } = await api.call('listDeployments', {
      query: { project_id: project.id, limit: 5 },
    });
    for (const d of items) {
      if (!evenUnchanged && lastRead.get(d.id) === d.status) continue;
      lastRead.set(d.id, d.status);
      record({
        type: 'read',
        sent,
        project: project.id,
        deployment: d.id,
        state: d.status,
        node: d.node_id,
      });
    }
  }

  async function readConfiguration(): Promise<void> {
    const answer = await fetch(configUrl, { signal: AbortSignal.timeout(2_000) });
    if (!answer.ok) return;
    const { http } = (await answer.json()) as {
      http: { services?: Record<string, { loadBalancer?: { servers?: { url: string }[] } }> };
    };
    const address =
      http.services?.[project.name]?.loadBalancer?.servers?.[0]?.url.replace('http://', '') ?? '';
    if (address === handed) return;
    handed = address;
    record({
      type: 'routed',
      proxy: 'proxy',
      routes: address === '' ? {} : { [project.id]: address },
    });
  }

  /**
   * Returns the address at which a container answered on that engine: the last one reported before
   * `at`, or the next one after it. Two agents with one identity can each start a container of a
   * deployment. Reports name no container, so they count only for one that no list names.
   */
  function addressAt({ deployment, container, at, change }: ContainerEvent, hostIp: string) {
    const told = history.events.filter(
      (e): e is Extract<HistoryEvent, { type: 'reporting' | 'observing' }> =>
        (e.type === 'reporting' || e.type === 'observing') &&
        e.deployment === deployment &&
        e.address?.startsWith(`${hostIp}:`) === true,
    );
    const listed = told.filter((e) => e.type === 'observing' && e.container === container);
    const known =
      listed.length > 0
        ? listed
        : told.filter((e) => e.type === 'reporting' || e.container === undefined);
    const before = known.findLast((e) => e.at < at)?.address ?? null;
    const after = known.find((e) => e.at >= at)?.address ?? null;
    // A restarted container has a new port.
    return change === 'started' ? (after ?? before) : (before ?? after);
  }

  async function readEngines(until: number): Promise<void> {
    for (const { hostIp, events } of await Promise.all(
      followed.map(async (f) => ({ hostIp: f.hostIp, events: await f.upTo(until) })),
    ))
      for (const event of events) {
        const { at, change, container, deployment, node } = event;
        const cause = outside.some(({ from, to }) => from <= at && at <= to) ? 'outside' : 'task';
        const address = addressAt(event, hostIp);
        record(
          {
            type: 'container',
            change,
            cause,
            node,
            container,
            project: project.id,
            deployment,
            address,
          },
          at,
        );
      }
  }

  function readStories(): void {
    const of = `in (select id from deployments where project_id = '${project.id}') and at >= ${since}`;
    for (const event of query(
      "select deployment_id, at, message from deployment_events where kind = 'route_published' " +
        `and deployment_id ${of}`,
    )) {
      const address = addressIn(event['message']);
      // The proxy served it at the latest at the switch. A read of the configuration before that
      // may be late.
      const [seen] = query(
        `select at from deployment_events where deployment_id = '${event['deployment_id']}' ` +
          "and kind = 'running'",
      );
      if (address !== null && seen !== undefined)
        record(
          { type: 'routed', proxy: 'proxy', routes: { [project.id]: address } },
          Number(seen['at']) - 1,
        );
    }
    const stories = new Map<string, Record<string, number>>();
    for (const row of query(
      `select deployment_id, kind, count(*) n from deployment_events where deployment_id ${of} ` +
        'group by deployment_id, kind',
    ))
      stories.set(String(row['deployment_id']), {
        ...stories.get(String(row['deployment_id'])),
        [String(row['kind'])]: Number(row['n']),
      });
    for (const [deployment, kinds] of stories) record({ type: 'story', deployment, kinds });
  }

  return {
    record,
    watch() {
      ending = new AbortController();
      const { signal } = ending;
      watching = (async () => {
        while (!signal.aborted) {
          await readAll(false).catch((error: unknown) => {
            // The control plane is down at the moment: these rows cause that.
            if (!isUnavailable(error)) record({ type: 'internal_error', message: String(error) });
          });
          // A proxy that gets no configuration keeps its last one.
          await readConfiguration().catch(() => undefined);
          await sleep(EVERY_MS);
        }
      })();
    },
    async judge() {
      ending.abort();
      await watching;
      await readAll(true);
      await readConfiguration();
      const until = Date.now();
      await readEngines(until);
      readStories();
      since = until;
      record({ type: 'ended' });
      const fresh = check(history.events.toSorted((a, b) => a.at - b.at))
        .map((violation) => `${violation.invariant}: ${violation.message}`)
        .filter((text) => !reported.has(text));
      // Report a violation once: a broken row must not fail all later rows.
      for (const text of fresh) reported.add(text);
      return fresh;
    },
    kinds: () => new Set(history.events.map((e) => e.type)),
    async fromOutside(play) {
      const window = { from: Date.now(), to: Infinity };
      outside.push(window);
      try {
        return await play();
      } finally {
        window.to = Date.now();
      }
    },
    async databaseRestored() {
      await readEngines(Date.now());
      lastRead.clear();
      history.events.splice(
        0,
        history.events.length,
        ...history.events.filter((e) => !LOST_BY_RESTORE.has(e.type)),
      );
    },
    async stop() {
      ending.abort();
      await watching;
      await Promise.all(followed.map((f) => f.stop()));
    },
  };
}
