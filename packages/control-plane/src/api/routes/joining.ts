/**
 * Routes with which admins let machines join: join tokens for agents of Berth, admissions for
 * contract-only agents.
 */
import type { ReadStream } from 'node:fs';
import { Readable } from 'node:stream';
import { duration } from '@berth/kit/config';
import { DomainError, invalid } from '../../domain/platform/errors.ts';
import { type Define, SENT } from '../define.ts';
import type { ApiDeps } from '../deps.ts';
import { joinCommand } from '../join-command.ts';
import { createPackages } from '../packages.ts';
import { pageOf } from '../page.ts';
import { networkOf } from '../auth/attempts.ts';
import { sha256Of, newId, newJoinToken } from '../auth/secrets.ts';
import { admissionView, joinTokenView } from '../views.ts';

const MIN_TTL_MS = 60_000;
const MAX_TTL_MS = 30 * 86_400_000;
/**
 * Downloads of packages at once. Nobody signs in for them, so their number and their time have
 * limits.
 */
const MOST_DOWNLOADS = 8;
const MOST_OF_ONE = 2;
const DOWNLOAD_MS = 15 * 60_000;
/** A download that moves less in this time ends: it would keep its place from others. */
const LEAST_BYTES = 1_048_576;
const LEAST_MS = 30_000;
const RETRY_SECONDS = 10;

export function joiningRoutes(route: Define, { stores, settings, now }: ApiDeps): void {
  const packages = createPackages(settings.packageDir);
  /** Running downloads by network. */
  const downloads = new Map<string, number>();

  /**
   * Takes a place at once, so that a burst cannot pass the limit. Returns a function that frees it.
   */
  function takePlace(network: string): () => void {
    const own = downloads.get(network) ?? 0;
    const all = [...downloads.values()].reduce((sum, count) => sum + count, 0);
    if (own >= MOST_OF_ONE || all >= MOST_DOWNLOADS)
      throw new DomainError('too_many_requests', undefined, [], RETRY_SECONDS);
    downloads.set(network, own + 1);
    return () => {
      const left = (downloads.get(network) ?? 1) - 1;
      if (left > 0) downloads.set(network, left);
      else downloads.delete(network);
    };
  }

  route('getPackage', async ({ params, request, reply }) => {
    const isHead = request.method === 'HEAD';
    const free = isHead ? () => undefined : takePlace(networkOf(request.ip));
    let body: Readable | null = null;
    try {
      const found = await packages.open(params.file);
      if (found === null) throw new DomainError('not_found', 'PACKAGE_DIR has no such package');
      if (isHead) await found.file.close();
      body = isHead ? Readable.from([]) : limited(found.file.createReadStream(), free);
      void reply
        .header('content-type', 'application/vnd.debian.binary-package')
        .header('content-length', found.bytes)
        .header('cache-control', 'no-cache')
        .send(body);
      return SENT;
    } finally {
      if (body === null) free();
    }
  });

  route('createJoinToken', async ({ body, user }) => {
    const expires_at = now() + lifetimeOf(body.ttl ?? '1h');
    const id = newId();
    const token = newJoinToken(id);
    const { role, name = null } = body;
    const made = await stores.joinTokens.create(
      { id, hash: sha256Of(token), role, name, created_by: user.email, expires_at },
      now(),
    );
    const { controlPlaneUrl, registry, version } = settings;
    const served = await packages.ofVersion(version);
    const joining = {
      role,
      name,
      controlPlaneUrl,
      registryAddr: registry().addr,
      version,
      packages: served,
    };
    return { ...joinTokenView(made), token, ...joinCommand(joining) };
  });

  route('listJoinTokens', async ({ query }) => {
    const { items, next } = await stores.joinTokens.list(now(), pageOf(query));
    return { items: items.map(joinTokenView), next_cursor: next };
  });

  route('deleteJoinToken', async ({ params }) => stores.joinTokens.remove(params.id));

  route('createAdmission', async ({ body }) =>
    admissionView(await stores.admissions.create(body, now())),
  );

  route('listAdmissions', async () => ({
    items: (await stores.admissions.list()).map(admissionView),
    next_cursor: null,
  }));

  route('deleteAdmission', async ({ params }) => stores.admissions.remove(params.id));
}

/** Ends a download that takes too long or stalls. Calls `closed` when it is over. */
function limited(stream: ReadStream, closed: () => void): ReadStream {
  const deadline = setTimeout(
    () => stream.destroy(new Error('the download took too long')),
    DOWNLOAD_MS,
  ).unref();
  let before = 0;
  const pace = setInterval(() => {
    if (stream.bytesRead - before < LEAST_BYTES) stream.destroy(new Error('the download stalled'));
    before = stream.bytesRead;
  }, LEAST_MS).unref();
  return stream.once('close', () => {
    clearTimeout(deadline);
    clearInterval(pace);
    closed();
  });
}

function lifetimeOf(ttl: string): number {
  const problem = (message: string): Error => invalid('ttl', 'duration', message);
  let ms: number;
  try {
    ms = duration(ttl);
  } catch (error) {
    throw problem(error instanceof Error ? error.message : 'must be a duration such as 1h');
  }
  if (ms < MIN_TTL_MS || ms > MAX_TTL_MS) throw problem(`must be from 1m to 30d, not "${ttl}"`);
  return ms;
}
