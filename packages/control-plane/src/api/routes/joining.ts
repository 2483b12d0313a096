/** Routes with which admins let machines join: join tokens for agents of Berth, admissions for contract-only agents. */
import { duration } from '@berth/kit/config';
import { DomainError, invalid } from '../../domain/errors.ts';
import { type Define, SENT } from '../define.ts';
import type { ApiDeps } from '../deps.ts';
import { joinCommand } from '../join-command.ts';
import { createPackages } from '../packages.ts';
import { pageOf } from '../page.ts';
import { sha256Of, newId, newJoinToken } from '../auth/secrets.ts';
import { admissionView, joinTokenView } from '../views.ts';

const MIN_TTL_MS = 60_000;
const MAX_TTL_MS = 30 * 86_400_000;
/** Downloads of packages at once. Nobody signs in for them, so their number and their time have limits. */
const MOST_DOWNLOADS = 8;
const DOWNLOAD_MS = 15 * 60_000;
const RETRY_SECONDS = 10;

export function joiningRoutes(route: Define, { stores, settings, now }: ApiDeps): void {
  const packages = createPackages(settings.packageDir);
  let downloads = 0;

  route('getPackage', async ({ params, reply }) => {
    if (downloads >= MOST_DOWNLOADS) throw new DomainError('too_many_requests', undefined, [], RETRY_SECONDS);
    const found = await packages.open(params.file);
    if (found === null) throw new DomainError('not_found', 'PACKAGE_DIR has no such package');
    downloads++;
    const stream = found.file.createReadStream();
    const deadline = setTimeout(() => stream.destroy(new Error('the download took too long')), DOWNLOAD_MS).unref();
    stream.once('close', () => {
      clearTimeout(deadline);
      downloads--;
    });
    void reply
      .header('content-type', 'application/vnd.debian.binary-package')
      .header('content-length', found.bytes)
      .header('cache-control', 'no-cache')
      .send(stream);
    return SENT;
  });

  route('createJoinToken', async ({ body, user }) => {
    const expires_at = now() + lifetimeOf(body.ttl ?? '1h');
    const id = newId();
    const token = newJoinToken(id);
    const { role, name = null } = body;
    const made = await stores.joinTokens.create({ id, hash: sha256Of(token), role, name, created_by: user.email, expires_at }, now());
    const { controlPlaneUrl, registry, version } = settings;
    const served = await packages.ofVersion(version);
    const joining = { role, name, controlPlaneUrl, registryAddr: registry().addr, version, packages: served };
    return { ...joinTokenView(made), token, ...joinCommand(joining) };
  });

  route('listJoinTokens', async ({ query }) => {
    const { items, next } = await stores.joinTokens.list(now(), pageOf(query));
    return { items: items.map(joinTokenView), next_cursor: next };
  });

  route('deleteJoinToken', async ({ params }) => stores.joinTokens.remove(params.id));

  route('createAdmission', async ({ body }) => admissionView(await stores.admissions.create(body, now())));

  route('listAdmissions', async () => ({ items: (await stores.admissions.list()).map(admissionView), next_cursor: null }));

  route('deleteAdmission', async ({ params }) => stores.admissions.remove(params.id));
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
