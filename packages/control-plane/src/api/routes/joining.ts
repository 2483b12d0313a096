/**
 * Routes with which admins let machines join: join tokens for agents of Berth, admissions for
 * contract-only agents.
 */
import type { ReadStream } from 'node:fs';
import { Readable } from 'node:stream';
import { duration } from '@berth/kit/config';
import { createRefCounts, type RefCounts } from '@berth/kit/ref-count';
import { DomainError, invalid } from '../../domain/platform/errors.ts';
import { type Define, SENT, type Call } from '../define.ts';
import { createInstallScript } from '../install-script.ts';
import { joinCommand } from '../join-command.ts';
import { createPackages, type Packages } from '../packages.ts';
import { pageOf } from '../page.ts';
import { networkOf } from '../auth/attempts.ts';
import { sha256Of, newId, newJoinToken } from '../auth/secrets.ts';
import { admissionView, joinTokenView } from '../views.ts';
import type { JoinTokenStore, AdmissionStore } from '../../domain/nodes/join-stores.ts';
import type { ApiSettings } from '../settings.ts';

const MIN_TTL_MS = 60_000;
const MAX_TTL_MS = 30 * 86_400_000;
/**
 * Maximum number of parallel downloads of packages. Downloads need no sign-in, so their number and
 * time are limited.
 */
const MOST_DOWNLOADS = 8;
const MOST_OF_ONE = 2;
const DOWNLOAD_MS = 15 * 60_000;
/**
 * Minimum progress: a download that moves fewer bytes in LEAST_MS ends, because it would block
 * others.
 */
const LEAST_BYTES = 1_048_576;
const LEAST_MS = 30_000;
const RETRY_SECONDS = 10;

export type Deps = {
  joinTokens: Pick<JoinTokenStore, 'create' | 'list' | 'remove'>;
  admissions: Pick<AdmissionStore, 'create' | 'list' | 'remove'>;
  settings: Pick<ApiSettings, 'controlPlaneUrl' | 'packageDir' | 'registry' | 'version'>;
  now: () => number;
};

/** State shared by all requests. */
type Context = Deps & {
  packages: Packages;
  /** Number of running downloads by network. */
  downloads: RefCounts;
};

export function joiningRoutes(route: Define, deps: Deps): void {
  const packages = createPackages(deps.settings.packageDir);
  const downloads = createRefCounts();
  const context: Context = { ...deps, packages, downloads };
  const installScript = createInstallScript();
  route('getInstallScript', async ({ request, reply }) => {
    installScript.send(request, reply);
    return SENT;
  });
  route('getPackage', (call) => getPackage(context, call));
  route('createJoinToken', (call) => createJoinToken(context, call));
  route('listJoinTokens', (call) => listJoinTokens(deps, call));
  route('deleteJoinToken', async ({ params }) => deps.joinTokens.remove(params.id));
  route('createAdmission', async ({ body }) =>
    admissionView(await deps.admissions.create(body, deps.now())),
  );
  route('listAdmissions', async () => ({
    items: (await deps.admissions.list()).map(admissionView),
    next_cursor: null,
  }));
  route('deleteAdmission', async ({ params }) => deps.admissions.remove(params.id));
}

/**
 * Takes a place immediately, so that a burst cannot exceed the limit. Returns a function that frees
 * it.
 */
function takePlace(context: Context, network: string): () => void {
  const { downloads } = context;
  if (downloads.count(network) >= MOST_OF_ONE || downloads.total() >= MOST_DOWNLOADS)
    throw new DomainError('too_many_requests', undefined, [], RETRY_SECONDS);
  return downloads.add(network);
}

async function getPackage(context: Context, { params, request, reply }: Call<'getPackage'>) {
  const isHead = request.method === 'HEAD';
  const free = isHead ? () => undefined : takePlace(context, networkOf(request.ip));
  let body: Readable | null = null;
  try {
    const joinPackage = await context.packages.open(params.file);
    if (joinPackage === null) throw new DomainError('not_found', 'PACKAGE_DIR has no such package');
    if (isHead) await joinPackage.file.close();
    body = isHead ? Readable.from([]) : limited(joinPackage.file.createReadStream(), free);
    void reply
      .header('content-type', 'application/vnd.debian.binary-package')
      .header('content-length', joinPackage.bytes)
      .header('cache-control', 'no-cache')
      .send(body);
    return SENT;
  } finally {
    if (body === null) free();
  }
}

async function createJoinToken(context: Context, { body, user }: Call<'createJoinToken'>) {
  const expires_at = context.now() + lifetimeOf(body.ttl ?? '1h');
  const id = newId();
  const token = newJoinToken(id);
  const { role, name = null } = body;
  const made = await context.joinTokens.create(
    { id, hash: sha256Of(token), role, name, created_by: user.email, expires_at },
    context.now(),
  );
  const { controlPlaneUrl, registry, version } = context.settings;
  const served = await context.packages.ofVersion(version);
  const joining = {
    role,
    name,
    controlPlaneUrl,
    registryAddr: registry().addr,
    version,
    packages: served,
  };
  return { ...joinTokenView(made), token, ...joinCommand(joining) };
}

async function listJoinTokens(deps: Deps, { query }: Call<'listJoinTokens'>) {
  const { items, next } = await deps.joinTokens.list(deps.now(), pageOf(query));
  return { items: items.map(joinTokenView), next_cursor: next };
}

/** Ends a download that takes too long or stalls. Calls `closed` after the end. */
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
