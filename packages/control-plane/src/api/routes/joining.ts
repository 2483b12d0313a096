/** Routes with which admins let machines join: join tokens for agents of Berth, admissions for contract-only agents. */
import { duration } from '@berth/kit/config';
import { invalid } from '../../domain/errors.ts';
import type { Define } from '../define.ts';
import type { ApiDeps } from '../deps.ts';
import { pageOf } from '../page.ts';
import { sha256Of, newId, newJoinToken } from '../auth/secrets.ts';
import { admissionView, joinTokenView } from '../views.ts';

const MIN_TTL_MS = 60_000;
const MAX_TTL_MS = 30 * 86_400_000;

export function joiningRoutes(route: Define, { stores, settings, now }: ApiDeps): void {
  route('createJoinToken', async ({ body, user }) => {
    const expires_at = now() + lifetimeOf(body.ttl ?? '1h');
    const id = newId();
    const token = newJoinToken(id);
    const { role, name = null } = body;
    const made = await stores.joinTokens.create({ id, hash: sha256Of(token), role, name, created_by: user.email, expires_at }, now());
    return { ...joinTokenView(made), token, command: commandOf(role, name) };
  });

  route('listJoinTokens', async ({ query }) => {
    const { items, next } = await stores.joinTokens.list(now(), pageOf(query));
    return { items: items.map(joinTokenView), next_cursor: next };
  });

  route('deleteJoinToken', async ({ params }) => stores.joinTokens.remove(params.id));

  route('createAdmission', async ({ body }) => admissionView(await stores.admissions.create(body, now())));

  route('listAdmissions', async () => ({ items: (await stores.admissions.list()).map(admissionView), next_cursor: null }));

  route('deleteAdmission', async ({ params }) => stores.admissions.remove(params.id));

  /** Returns a command that reads the token from standard input, because others can see arguments and the history of the shell. */
  function commandOf(role: string, name: string | null): string {
    const named = name === null ? '' : ` NODE_NAME=${name}`;
    return `NODE_ROLE=${role}${named} CONTROL_PLANE_URL=${settings.controlPlaneUrl} JOIN_TOKEN_FILE=/dev/stdin berth agent`;
  }
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
