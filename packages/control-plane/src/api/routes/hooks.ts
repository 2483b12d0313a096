/**
 * Hooks: the address that a forge calls, and its view for people. Every invalid delivery gets the
 * same 404 as an unknown path, so the answer reveals neither whether a project exists nor why a
 * delivery is refused. People see the reason in the list of deliveries.
 */
import { randomBytes } from 'node:crypto';
import { failPoint } from '@berth/kit/fail-point';
import { type HookCreated, STANDARD_SECRET_PREFIX } from '@berth/wire/hook';
import { LRUCache } from 'lru-cache';
import { DomainError, invalid } from '../../domain/platform/errors.ts';
import { HOOK_SECRET, type HookRecord, type HookStore } from '../../domain/git/hooks.ts';
import { PLATFORM_KEYS, type Vault } from '../../domain/secrets/vault.ts';
import { judge } from '../../flow/delivery.ts';
import { type Attempts, networkOf } from '../auth/attempts.ts';
import { newId } from '../auth/secrets.ts';
import type { Define, Call } from '../define.ts';
import {
  createDeliveryBodies,
  isTooLong,
  KEPT_BYTES,
  tooLarge,
  type DeliveryBodies,
} from '../hooks/body.ts';
import { eventOf, forgeIdOf, readDelivery } from '../hooks/payload.ts';
import { checkSignature, hasProof, isStandardSecret } from '../hooks/signatures.ts';
import { pageOf } from '../page.ts';
import { notHere } from '../problem.ts';
import { deliveryView, hookView } from '../views.ts';
import { growingTo } from '../lru.ts';
import type { ProjectStore } from '../../domain/projects/project-store.ts';
import type { ApiSettings } from '../settings.ts';
import type { Changes } from '../../domain/platform/changes.ts';
import type { Telemetry } from '../../domain/platform/telemetry.ts';
import type { Logger } from '@berth/kit/log';

/**
 * Maximum number of refused deliveries of one project to store in one minute. More are only
 * counted.
 */
const STORED_A_MINUTE = 20;
const MINUTE_MS = 60_000;
const MAX_PROJECTS = 10_000;

export type Deps = {
  hooks: Pick<
    HookStore,
    'deliveries' | 'delivery' | 'get' | 'put' | 'receive' | 'refuse' | 'remove'
  >;
  projects: Pick<ProjectStore, 'get'>;
  /** Counts refused deliveries by network. */
  refusedDeliveries: Attempts;
  settings: Pick<ApiSettings, 'publicUrl'>;
  vault: Pick<Vault, 'open' | 'seal'>;
  changes: Pick<Changes, 'notify'>;
  now: () => number;
  telemetry: Pick<Telemetry, 'emit'>;
  log: Logger;
};

/** State shared by all requests. */
type Context = Deps & {
  bodies: DeliveryBodies;
  unknown: Promise<string> | null;
  notStored: LRUCache<string, { since: number; stored: number; count: number }>;
};

export function hookRoutes(route: Define, deps: Deps): void {
  const bodies = createDeliveryBodies();
  let unknown: Promise<string> | null = null;
  /**
   * Refused deliveries by project within a minute: the number stored, and the number not stored.
   */
  const notStored = new LRUCache<string, { since: number; stored: number; count: number }>(
    growingTo(MAX_PROJECTS),
  );
  const context: Context = { ...deps, bodies, unknown, notStored };
  route('putHook', (call) => putHook(deps, call));
  route('getHook', (call) => getHook(context, call));
  route('deleteHook', (call) => deleteHook(deps, call));
  route('listDeliveries', (call) => listDeliveries(deps, call));
  route('getDelivery', async ({ params }) =>
    deliveryView(await deps.hooks.delivery(params.id, params.delivery)),
  );
  route('redeliver', (call) => redeliver(deps, call));
  route('receiveHook', (call) => receiveHook(context, call));
}

function view(deps: Deps, hook: HookRecord) {
  return hookView(hook, deps.settings.publicUrl);
}

async function hookOf(deps: Deps, projectId: string): Promise<HookRecord> {
  const hook = await deps.hooks.get(projectId);
  if (hook === null) throw new DomainError('not_found', 'the project has no hook');
  return hook;
}

async function putHook(deps: Deps, { params, body }: Call<'putHook'>): Promise<HookCreated> {
  const { forge, secret: given } = body;
  if (
    forge === 'gitlab' &&
    given?.startsWith(STANDARD_SECRET_PREFIX) === true &&
    !isStandardSecret(given)
  )
    throw invalid(
      'secret',
      'standard',
      'must be whsec_ followed by 24 to 64 bytes in base64, as GitLab shows it',
    );
  const secret = given ?? randomBytes(32).toString('base64url');
  const sealed = await deps.vault.seal(params.id, HOOK_SECRET, secret);
  const hook = await deps.hooks.put({ project_id: params.id, forge, secret: sealed }, deps.now());
  deps.changes.notify('events');
  return { ...view(deps, hook), secret: given === undefined ? secret : null };
}

async function getHook(context: Context, { params }: Call<'getHook'>) {
  const hook = await hookOf(context, params.id);
  return view(context, {
    ...hook,
    refused: hook.refused + (context.notStored.get(params.id)?.count ?? 0),
  });
}

async function deleteHook(deps: Deps, { params }: Call<'deleteHook'>) {
  await deps.hooks.remove(params.id, deps.now());
  deps.changes.notify('events');
}

async function listDeliveries(deps: Deps, { params, query }: Call<'listDeliveries'>) {
  await hookOf(deps, params.id);
  const { items, next } = await deps.hooks.deliveries(params.id, pageOf(query));
  return { items: items.map(deliveryView), next_cursor: next };
}

async function redeliver(deps: Deps, { params }: Call<'redeliver'>) {
  const earlier = await deps.hooks.delivery(params.id, params.delivery);
  if (earlier.verdict === 'refused')
    throw new DomainError(
      'wrong_state',
      'Berth refused the delivery and did not read it, so it cannot be repeated; deploy the ' +
        'project instead',
    );
  const project = await deps.projects.get(params.id);
  if (project.deleting_at !== null) throw new DomainError('being_deleted');
  const { event, branch, commit } = earlier;
  // A push without a branch is a hint to check the branch.
  const refs =
    branch === null ? null : [{ kind: 'branch', name: branch, commit, deleted: false } as const];
  const judged = judge({ event, refs }, project);
  return deliveryView(await store(deps, params.id, { ...judged, forge_id: null }));
}

async function store(
  deps: Deps,
  projectId: string,
  given: ReturnType<typeof judge> & { forge_id: string | null },
) {
  const { event, branch, commit, skip, forge_id } = given;
  const delivery = {
    id: newId(),
    forge_id,
    event,
    branch,
    commit,
    verdict: skip === null ? null : ('skipped' as const),
    reason: skip,
  };
  const stored = await deps.hooks.receive(projectId, delivery, deps.now());
  if (stored === null) throw new DomainError('not_found', 'the project has no hook');
  deps.telemetry.emit({ what: 'delivery', verdict: stored.verdict ?? 'accepted' });
  if (stored.verdict === null) deps.changes.notify('work');
  return stored;
}

/** Opens the placeholder secret of unknown projects. It is sealed once. */
async function openUnknown(context: Context): Promise<Buffer> {
  try {
    context.unknown ??= context.vault.seal(OF_NO_PROJECT, HOOK_SECRET, UNKNOWN);
    return await context.vault.open(OF_NO_PROJECT, HOOK_SECRET, await context.unknown);
  } catch (error) {
    context.unknown = null;
    if (error instanceof DomainError && error.code === 'secrets_locked')
      return Buffer.from(UNKNOWN);
    throw error;
  }
}

async function receiveHook(context: Context, { params, request, reply }: Call<'receiveHook'>) {
  const { headers } = request;
  const nothingHere = new DomainError('not_found', notHere(request.url));
  if (isTooLong(headers['content-length'])) throw tooLarge();
  const network = networkOf(request.ip);
  // Accept a valid signature even above the limit: the hooks of one forge, including strangers'
  // hooks, come from few addresses.
  const over = context.refusedDeliveries.over(network);
  const most = over === null ? undefined : KEPT_BYTES;
  if (over !== null && Number(headers['content-length'] ?? 0) > KEPT_BYTES) throw over;
  if (!hasProof(headers)) throw over ?? nothingHere;
  // Do the same reads, key operations and hashes for an unknown project, so that the response time
  // does not reveal whether it exists.
  const hook = await context.hooks.get(params.id);
  const project = await context.projects.get(params.id).catch(orNull);
  const secret = await (hook === null
    ? openUnknown(context)
    : context.vault.open(hook.project_id, HOOK_SECRET, hook.secret));
  const check = checkSignature(hook?.forge ?? 'github', {
    secret: secret.toString(),
    headers,
    now: context.now(),
  });
  const body = await context.bodies.read(request.raw, check, most).catch((error: unknown) => {
    throw over !== null && error instanceof DomainError && error.code === 'body_too_large'
      ? over
      : error;
  });
  const problem = check.problem();
  if (hook === null || project === null || project.deleting_at !== null) throw over ?? nothingHere;
  if (problem !== null) {
    const refusal = { event: eventOf(hook.forge, headers), reason: problem };
    // Write after the answer, so that the write does not delay it.
    setImmediate(() => refused(context, hook, refusal));
    throw over ?? nothingHere;
  }
  if (over === null) context.refusedDeliveries.takeBack(network);
  void reply.removeHeader('connection');
  // Read again: somebody might have changed the project or replaced the secret while the body
  // arrived.
  const [hookNow, projectNow] = [
    await context.hooks.get(params.id),
    await context.projects.get(params.id).catch(orNull),
  ];
  if (
    hookNow?.updated_at !== hook.updated_at ||
    projectNow === null ||
    projectNow.deleting_at !== null
  )
    throw nothingHere;
  const judged = judge(readDelivery(hook.forge, headers, body), projectNow);
  const stored = await store(context, params.id, {
    ...judged,
    forge_id: forgeIdOf(hook.forge, headers),
  });
  await failPoint('hook.stored');
  return { id: stored.id };
}

function refused(
  context: Context,
  { project_id }: HookRecord,
  delivery: { event: string; reason: string },
): void {
  context.telemetry.emit({ what: 'delivery', verdict: 'refused' });
  const at = context.now();
  const before = context.notStored.get(project_id);
  const minute =
    before === undefined || before.since <= at - MINUTE_MS
      ? { since: at, stored: 0, count: before?.count ?? 0 }
      : before;
  context.notStored.set(project_id, minute);
  if (minute.stored >= STORED_A_MINUTE) return void (minute.count += 1);
  minute.stored += 1;
  const others = minute.count;
  minute.count = 0;
  context.hooks
    .refuse(project_id, { id: newId(), ...delivery }, others, at)
    .catch((error: unknown) =>
      context.log.error({ err: error, project_id }, 'storing a refused delivery failed'),
    );
}

/** Placeholder secret for projects without a hook; no delivery can match it. */
const UNKNOWN = randomBytes(32).toString('base64url');
const [OF_NO_PROJECT] = PLATFORM_KEYS;

const orNull = (error: unknown): null => {
  if (error instanceof DomainError && error.code === 'not_found') return null;
  throw error;
};
