/**
 * Hooks: the address that a forge calls, and what people see of it. Every invalid delivery gets the
 * same 404 as an unknown path, so the address tells neither whether a project exists nor why a
 * delivery is refused. People see the reason in the list of deliveries.
 */
import { randomBytes } from 'node:crypto';
import { failPoint } from '@berth/kit/fail-point';
import { type HookCreated, STANDARD_SECRET_PREFIX } from '@berth/wire/hook';
import { LRUCache } from 'lru-cache';
import { DomainError, invalid } from '../../domain/platform/errors.ts';
import { HOOK_SECRET, type HookRecord } from '../../domain/git/hooks.ts';
import { PLATFORM_KEYS } from '../../domain/secrets/vault.ts';
import { judge } from '../../flow/delivery.ts';
import { type Attempts, networkOf } from '../auth/attempts.ts';
import { newId } from '../auth/secrets.ts';
import type { Define } from '../define.ts';
import type { ApiDeps } from '../deps.ts';
import { createDeliveryBodies, isTooLong, KEPT_BYTES, tooLarge } from '../hooks/body.ts';
import { eventOf, forgeIdOf, readDelivery } from '../hooks/payload.ts';
import { checkSignature, hasProof, isStandardSecret } from '../hooks/signatures.ts';
import { pageOf } from '../page.ts';
import { notHere } from '../problem.ts';
import { deliveryView, hookView } from '../views.ts';
import { growingTo } from '../lru.ts';

/** Refused deliveries of one project that are stored in one minute. More are only counted. */
const STORED_A_MINUTE = 20;
const MINUTE_MS = 60_000;
const MAX_PROJECTS = 10_000;

type Deps = ApiDeps & {
  /** Refused deliveries by network. */
  refusals: Attempts;
};

export function hookRoutes(route: Define, deps: Deps): void {
  const { stores, changes, settings, vault, refusals, telemetry, now, log } = deps;
  const bodies = createDeliveryBodies();
  const view = (hook: HookRecord) => hookView(hook, settings.publicUrl);

  async function hookOf(projectId: string): Promise<HookRecord> {
    const hook = await stores.hooks.get(projectId);
    if (hook === null) throw new DomainError('not_found', 'the project has no hook');
    return hook;
  }

  route('putHook', async ({ params, body }): Promise<HookCreated> => {
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
    const sealed = await vault.seal(params.id, HOOK_SECRET, secret);
    const hook = await stores.hooks.put({ project_id: params.id, forge, secret: sealed }, now());
    changes.notify('events');
    return { ...view(hook), secret: given === undefined ? secret : null };
  });

  route('getHook', async ({ params }) => {
    const hook = await hookOf(params.id);
    return view({ ...hook, refused: hook.refused + (notStored.get(params.id)?.count ?? 0) });
  });

  route('deleteHook', async ({ params }) => {
    await stores.hooks.remove(params.id, now());
    changes.notify('events');
  });

  route('listDeliveries', async ({ params, query }) => {
    await hookOf(params.id);
    const { items, next } = await stores.hooks.deliveries(params.id, pageOf(query));
    return { items: items.map(deliveryView), next_cursor: next };
  });

  route('getDelivery', async ({ params }) =>
    deliveryView(await stores.hooks.delivery(params.id, params.delivery)),
  );

  route('redeliver', async ({ params }) => {
    const earlier = await stores.hooks.delivery(params.id, params.delivery);
    if (earlier.verdict === 'refused')
      throw new DomainError(
        'wrong_state',
        'Berth refused the delivery and did not read it, so it cannot be repeated; deploy the ' +
          'project instead',
      );
    const project = await stores.projects.get(params.id);
    if (project.deleting_at !== null) throw new DomainError('being_deleted');
    const { event, branch, commit } = earlier;
    // A push without a branch is a hint to check the branch, as before.
    const refs =
      branch === null ? null : [{ kind: 'branch', name: branch, commit, deleted: false } as const];
    const judged = judge({ event, refs }, project);
    return deliveryView(await store(params.id, { ...judged, forge_id: null }));
  });

  async function store(
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
    const stored = await stores.hooks.receive(projectId, delivery, now());
    if (stored === null) throw new DomainError('not_found', 'the project has no hook');
    telemetry.emit({ what: 'delivery', verdict: stored.verdict ?? 'accepted' });
    if (stored.verdict === null) changes.notify('work');
    return stored;
  }

  /** Opens the secret of no project. It is sealed once. */
  async function openUnknown(): Promise<Buffer> {
    try {
      unknown ??= vault.seal(OF_NO_PROJECT, HOOK_SECRET, UNKNOWN);
      return await vault.open(OF_NO_PROJECT, HOOK_SECRET, await unknown);
    } catch (error) {
      unknown = null;
      if (error instanceof DomainError && error.code === 'secrets_locked')
        return Buffer.from(UNKNOWN);
      throw error;
    }
  }
  let unknown: Promise<string> | null = null;

  route('receiveHook', async ({ params, request, reply }) => {
    const { headers } = request;
    const nothingHere = new DomainError('not_found', notHere(request.url));
    if (isTooLong(headers['content-length'])) throw tooLarge();
    const network = networkOf(request.ip);
    // Hooks of one forge come from few addresses, also those of strangers. So a right signature
    // counts although the limit is reached.
    const over = refusals.over(network);
    const most = over === null ? undefined : KEPT_BYTES;
    if (over !== null && Number(headers['content-length'] ?? 0) > KEPT_BYTES) throw over;
    if (!hasProof(headers)) throw over ?? nothingHere;
    // A delivery for an unknown project costs the same reads, keys and hashes, so that the time of
    // the answer does not tell them apart.
    const hook = await stores.hooks.get(params.id);
    const project = await stores.projects.get(params.id).catch(orNull);
    const secret = await (hook === null
      ? openUnknown()
      : vault.open(hook.project_id, HOOK_SECRET, hook.secret));
    const check = checkSignature(hook?.forge ?? 'github', {
      secret: secret.toString(),
      headers,
      now: now(),
    });
    const body = await bodies.read(request.raw, check, most).catch((error: unknown) => {
      throw over !== null && error instanceof DomainError && error.code === 'body_too_large'
        ? over
        : error;
    });
    const problem = check.problem();
    if (hook === null || project === null || project.deleting_at !== null)
      throw over ?? nothingHere;
    if (problem !== null) {
      const refusal = { event: eventOf(hook.forge, headers), reason: problem };
      // The write must not delay the answer.
      setImmediate(() => refused(hook, refusal));
      throw over ?? nothingHere;
    }
    if (over === null) refusals.takeBack(network);
    void reply.removeHeader('connection');
    // Somebody may have changed the project, or replaced the secret, while the body arrived.
    const [hookNow, projectNow] = [
      await stores.hooks.get(params.id),
      await stores.projects.get(params.id).catch(orNull),
    ];
    if (
      hookNow?.updated_at !== hook.updated_at ||
      projectNow === null ||
      projectNow.deleting_at !== null
    )
      throw nothingHere;
    const judged = judge(readDelivery(hook.forge, headers, body), projectNow);
    const stored = await store(params.id, { ...judged, forge_id: forgeIdOf(hook.forge, headers) });
    await failPoint('hook.stored');
    return { id: stored.id };
  });

  /**
   * Refused deliveries by project within a minute: those that were stored, and the count of those
   * that were not.
   */
  const notStored = new LRUCache<string, { since: number; stored: number; count: number }>(
    growingTo(MAX_PROJECTS),
  );

  function refused({ project_id }: HookRecord, delivery: { event: string; reason: string }): void {
    telemetry.emit({ what: 'delivery', verdict: 'refused' });
    const at = now();
    const before = notStored.get(project_id);
    const minute =
      before === undefined || before.since <= at - MINUTE_MS
        ? { since: at, stored: 0, count: before?.count ?? 0 }
        : before;
    notStored.set(project_id, minute);
    if (minute.stored >= STORED_A_MINUTE) return void (minute.count += 1);
    minute.stored += 1;
    const others = minute.count;
    minute.count = 0;
    stores.hooks
      .refuse(project_id, { id: newId(), ...delivery }, others, at)
      .catch((error: unknown) =>
        log.error({ err: error, project_id }, 'storing a refused delivery failed'),
      );
  }
}

/** A secret that proves nothing, for projects without a hook. */
const UNKNOWN = randomBytes(32).toString('base64url');
const [OF_NO_PROJECT] = PLATFORM_KEYS;

const orNull = (error: unknown): null => {
  if (error instanceof DomainError && error.code === 'not_found') return null;
  throw error;
};
