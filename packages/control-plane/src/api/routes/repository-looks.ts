/**
 * Routes that inspect a repository (branches, Dockerfile) for a project, or before the project
 * exists.
 */
import { randomUUID } from 'node:crypto';
import { defined } from '@berth/kit/defined';
import { type FailureCode, FAILURES } from '@berth/wire/errors';
import { RepositoryFound, type RepositoryLook } from '@berth/wire/repository-look';
import { Value } from 'typebox/value';
import { atLeast, roleIn } from '../../domain/identity/access.ts';
import { DomainError, invalid } from '../../domain/platform/errors.ts';
import { gitUrlProblem } from '../../domain/git/git-url.ts';
import { branchProblem } from '../../domain/git/git-ref.ts';
import {
  chooseBuilder,
  CLAIM_MS,
  LOOK_MS,
  type RepositoryLookRecord,
  type RepositoryLookStore,
} from '../../domain/git/repository-looks.ts';
import type { Caller } from '../auth/callers.ts';
import type { ProjectRecord } from '../../domain/platform/records.ts';
import { type Define, SENT, type Call } from '../define.ts';
import { etagOf, matchesEtag } from '../etag.ts';
import { createHoldWhile, type HoldWhile } from '../hold-while.ts';
import type { Holds } from '../long-poll.ts';
import { time } from '../views.ts';
import type { ProjectStore } from '../../domain/projects/project-store.ts';
import type { NodeStore } from '../../domain/nodes/node-store.ts';
import type { ApiSettings } from '../settings.ts';
import type { Limits } from '../../domain/deployments/facts.ts';
import type { Changes } from '../../domain/platform/changes.ts';
import type { UptimeClock } from '../../domain/platform/uptime.ts';

/**
 * Limits for each person: requests within the window, and open looks (`look` tasks). Each control
 * plane counts its own requests only.
 */
const MOST_IN_WINDOW = 20;
const WINDOW_MS = 60_000;
const OPEN_OF_ONE = 3;

/** A counted request. `isOpen`: it counts as an open look. `id`: null until the look exists. */
type Asked = { at: number; id: string | null; isOpen: boolean };

export type Deps = {
  repositoryLooks: Pick<RepositoryLookStore, 'create' | 'get' | 'open' | 'same'>;
  projects: Pick<ProjectStore, 'get' | 'guarded'>;
  nodes: Pick<NodeStore, 'all'>;
  settings: Pick<ApiSettings, 'allowedGitHosts'>;
  limits: Limits;
  changes: Pick<Changes, 'notify' | 'on'>;
  holds: Holds;
  now: () => number;
  uptime: Pick<UptimeClock, 'now'>;
};

/** State shared by all requests. */
type Context = Deps & {
  holdWhile: HoldWhile;
  asked: Map<string, Asked[]>;
  turn: number;
};

export function repositoryLookRoutes(route: Define, deps: Deps): void {
  const holdWhile = createHoldWhile({ changes: deps.changes, holds: deps.holds });
  const asked = new Map<string, Asked[]>();
  let turn = 0;
  const context: Context = { ...deps, holdWhile, asked, turn };
  route('createRepositoryLook', (call) => createRepositoryLook(context, call));
  route('getRepositoryLook', (call) => getRepositoryLook(context, call));
}

/**
 * Counts a request, whatever its outcome. The check and the count must be synchronous. Throws
 * too_many_requests.
 */
function count(context: Context, userId: string): Asked {
  for (const [user, list] of context.asked) {
    const recent = list.filter(({ at }) => at > context.now() - WINDOW_MS && at <= context.now());
    if (recent.length > 0) context.asked.set(user, recent);
    else context.asked.delete(user);
  }
  const mine = context.asked.get(userId) ?? [];
  if (mine.length >= MOST_IN_WINDOW)
    throw new DomainError(
      'too_many_requests',
      `you asked ${MOST_IN_WINDOW} times within a minute; try again in a minute`,
    );
  const request: Asked = { at: context.now(), id: null, isOpen: false };
  context.asked.set(userId, [...mine, request]);
  return request;
}

/** Counts the request as an open look before the look exists. Throws too_many_requests. */
async function takePlace(context: Context, userId: string, request: Asked): Promise<void> {
  const created = (context.asked.get(userId) ?? []).filter(
    ({ id, isOpen }) => isOpen && id !== null,
  );
  if (created.length > 0) {
    const open = new Set(await context.repositoryLooks.open());
    for (const look of created) look.isOpen = open.has(look.id ?? '');
  }
  // Check again: parallel requests of the same person might have been counted during the read.
  if ((context.asked.get(userId) ?? []).filter(({ isOpen }) => isOpen).length >= OPEN_OF_ONE)
    throw new DomainError(
      'too_many_requests',
      `${OPEN_OF_ONE} of your looks are still open; wait for their answers`,
    );
  request.isOpen = true;
}

/** Returns a project that the caller can edit. */
async function projectOf(deps: Deps, idOrName: string, user: Caller): Promise<ProjectRecord> {
  const guarded = await deps.projects.guarded(idOrName);
  const role = guarded === null ? null : roleIn(guarded, user);
  if (guarded === null || role === null)
    throw invalid('project_id', 'exists', 'no project has this id or name');
  if (!atLeast(role, 'developer'))
    throw new DomainError(
      'forbidden',
      'this request requires the role developer or a higher one; your role in this project is ' +
        role,
    );
  const project = await deps.projects.get(guarded.id);
  if (project.deleting_at !== null)
    throw new DomainError('being_deleted', `project ${project.name} is being deleted`);
  return project;
}

/**
 * Checks that the reader can edit the project of a look: the look can show the content of a private
 * repository.
 */
async function checkReader(
  deps: Deps,
  { project_id }: RepositoryLook,
  user: Caller,
): Promise<void> {
  if (project_id === undefined) return;
  const project = await deps.projects.guarded(project_id);
  const role = project === null ? null : roleIn(project, user);
  if (role === null || !atLeast(role, 'developer')) throw noLook();
}

async function createRepositoryLook(
  context: Context,
  { body, user, request }: Call<'createRepositoryLook'>,
) {
  const { branch = null } = body;
  const project =
    body.project_id === undefined ? null : await projectOf(context, body.project_id, user);
  const git_url = project?.git_url ?? body.git_url;
  if (git_url === undefined) throw invalid('git_url', 'required', 'is required without project_id');
  // Refuse any address except the project's: the project's key is for its repository only, and a
  // foreign server could collect keys.
  if (project !== null && body.git_url !== undefined && body.git_url !== git_url)
    throw invalid(
      'git_url',
      'of_project',
      'is not the git_url of the project; leave out one of the two fields',
    );
  const problem =
    gitUrlProblem(git_url, { allowedHosts: context.settings.allowedGitHosts }) ??
    (branch === null ? null : branchProblem(branch));
  if (problem !== null) throw invalid(problem.field, problem.rule, problem.message);
  request.audited = { target: git_url };
  const of = {
    git_url,
    branch,
    ...defined({ project_id: project === null ? undefined : project.id }),
  };
  const counted = count(context, user.id);
  const same = await context.repositoryLooks.same(of, context.now());
  if (same !== null) return view(same);
  const node = chooseBuilder(
    await context.nodes.all(),
    context.now(),
    context.limits,
    context.turn++,
  );
  if (typeof node === 'string')
    return {
      id: null,
      state: 'unavailable' as const,
      unavailable: node,
      ...of,
      requested_at: time(context.now()),
      found: null,
      error: null,
    };
  const { at } = await context.uptime.now();
  const deadlines = { queue_deadline_at: at + CLAIM_MS, wall_deadline_at: at + LOOK_MS };
  const payload = { repository: true as const, ...of };
  await takePlace(context, user.id, counted);
  const look = await context.repositoryLooks
    .create({ id: randomUUID(), node_id: node.id, ...deadlines, payload }, context.now())
    .catch((error: unknown) => {
      counted.isOpen = false;
      throw error;
    });
  counted.id = look.id;
  context.changes.notify(`node:${node.id}`);
  return view(look);
}

async function getRepositoryLook(
  context: Context,
  { params, query, user, recheck, setEtag, request, reply }: Call<'getRepositoryLook'>,
) {
  const read = async () => {
    const look = view(await context.repositoryLooks.get(params.id));
    return { look, etag: etagOf(JSON.stringify(look)) };
  };
  const knownEtag = request.headers['if-none-match'];
  const waitSeconds = query.wait ?? 0;
  await checkReader(context, (await read()).look, user);
  const { look, etag } = await context.holdWhile(
    read,
    { knownEtag, waitSeconds, topic: 'looks', holder: user.id },
    reply,
  );
  // The rights might have ended while the request was held.
  if (waitSeconds > 0) await checkReader(context, look, await recheck());
  setEtag(etag);
  if (!matchesEtag(knownEtag, etag)) return look;
  void reply.code(304).send();
  return SENT;
}

/** Failure codes for "git refused the access" and "the host hides the repository". */
const MAY_BE_PRIVATE = new Set<string>([
  'git_credentials',
  'git_repository_not_found',
  'git_key_refused',
] satisfies FailureCode[]);
const BEFORE_PROJECT =
  'A private repository cannot be read before its project exists: create the project, and then ' +
  'its deploy key or git token';
const OF_PROJECT = 'Check the deploy key or the git token of the project';
const noLook = (): DomainError =>
  new DomainError('not_found', 'the look does not exist; it may be too old');

function view(look: RepositoryLookRecord): RepositoryLook {
  const { id, payload, report, status, created_at } = look;
  const { git_url, branch, project_id } = payload;
  const base = {
    id,
    git_url,
    branch,
    ...defined({ project_id }),
    requested_at: time(created_at),
  };
  const hint = project_id === undefined ? BEFORE_PROJECT : OF_PROJECT;
  const result = report?.result ?? null;
  if (status === 'completed') {
    // Remove unknown fields: a newer agent might report more.
    const findings = Value.Clean(RepositoryFound, structuredClone(result)) as RepositoryFound;
    return { ...base, state: 'done', found: findings, error: null };
  }
  if (look.finished_at === null) return { ...base, state: 'waiting', found: null, error: null };
  const { code, message } = (typeof result === 'object' ? result?.error : null) ?? {
    code: 'task_failed',
    message: FAILURES.task_failed,
  };
  return {
    ...base,
    state: 'failed',
    found: null,
    error: { code, message: MAY_BE_PRIVATE.has(code) ? `${message}. ${hint}` : message },
  };
}
