/** Routes of the registry's clean-up: show its state and request a clean-up. */
import { randomUUID } from 'node:crypto';
import { defined } from '@berth/kit/defined';
import type { CleanUp, CleanUps } from '@berth/wire/clean-up';
import { FAILURES, isFailureCode } from '@berth/wire/errors';
import type { Role } from '@berth/wire/vocabulary';
import {
  CLEANS_SINCE,
  cleansRegistry,
  type CleanUpRecord,
  nextCleanUpAt,
  NO_AGENT,
  type CleanUpStore,
} from '../../domain/deployments/clean-up.ts';
import type { Define, Call } from '../define.ts';
import { time } from '../views.ts';
import type { NodeStore } from '../../domain/nodes/node-store.ts';
import type { MetaStore } from '../../domain/platform/meta-store.ts';
import type { ApiSettings } from '../settings.ts';

const SHOWN = 20;

export type Deps = {
  nodes: Pick<NodeStore, 'all'>;
  cleanUps: Pick<CleanUpStore, 'list' | 'request'>;
  meta: Pick<MetaStore, 'get'>;
  settings: Pick<ApiSettings, 'clean'>;
  now: () => number;
};

export function cleanUpRoutes(route: Define, deps: Deps): void {
  route('cleanUps', ({ user }) => view(deps, user.role));
  route('startCleanUp', (call) => startCleanUp(deps, call));
}

async function canClean(deps: Deps): Promise<boolean> {
  return (await deps.nodes.all()).some(cleansRegistry);
}

async function view(deps: Deps, role: Role): Promise<CleanUps> {
  const { keepReleases, intervalMs } = deps.settings.clean;
  const all = await deps.cleanUps.list();
  const since = Number((await deps.meta.get(CLEANS_SINCE)) ?? deps.now());
  const isPossible = await canClean(deps);
  const next = isPossible ? nextCleanUpAt(all, intervalMs, since) : null;
  const current = all.find((one) => one.finished_at === null);
  return {
    ...defined({ unavailable: isPossible ? undefined : NO_AGENT }),
    keep_releases: keepReleases,
    interval_seconds: intervalMs === null ? null : intervalMs / 1000,
    next_at: next === null || current !== undefined ? null : time(next),
    current: current === undefined ? null : cleanUpView(current, role),
    items: all
      .filter((one) => one.finished_at !== null)
      .slice(0, SHOWN)
      .map((one) => cleanUpView(one, role)),
  };
}

async function startCleanUp(deps: Deps, { user }: Call<'startCleanUp'>) {
  if (await canClean(deps))
    await deps.cleanUps.request({ id: randomUUID(), by: user.email }, deps.now());
  return view(deps, user.role);
}

const timeOrNull = (ms: number | null): string | null => (ms === null ? null : time(ms));

/** Converts a clean-up. The message can contain names of projects, so only admins get it. */
const cleanUpView = (one: CleanUpRecord, role: Role): CleanUp => ({
  id: one.id,
  state: one.state,
  requested_by: one.requested_by,
  requested_at: time(one.requested_at),
  started_at: timeOrNull(one.started_at),
  finished_at: timeOrNull(one.finished_at),
  waiting: one.waiting,
  images: one.images,
  images_left: one.images_left,
  removed: one.removed,
  missing: one.missing,
  bytes_before: one.bytes_before,
  bytes_after: one.bytes_after,
  error:
    one.error_code === null
      ? null
      : {
          code: one.error_code,
          message: role === 'admin' ? (one.error_message ?? '') : meaning(one.error_code),
        },
});

const meaning = (code: string): string => (isFailureCode(code) ? FAILURES[code] : code);
