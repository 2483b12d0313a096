/** Routes of the secrets of a project. No answer, event or error contains a value. */
import type { Secret } from '@berth/wire/secret';
import { envNameProblem } from '../../domain/projects/env.ts';
import { DomainError } from '../../domain/platform/errors.ts';
import type { ProjectRecord } from '../../domain/platform/records.ts';
import {
  type ChangedSecret,
  type NewSecret,
  secretValueProblem,
  type SecretRecord,
  vaultName,
  type SecretStore,
} from '../../domain/secrets/secrets.ts';
import type { ProjectVault, Vault } from '../../domain/secrets/vault.ts';
import type { Caller } from '../auth/callers.ts';
import type { Define, Call } from '../define.ts';
import { checkIfMatch } from '../etag.ts';
import { summaryOf } from '../problem.ts';
import { projectEtag } from '../resource-etags.ts';
import { time } from '../views.ts';
import type { ProjectStore } from '../../domain/projects/project-store.ts';
import type { Changes } from '../../domain/platform/changes.ts';

type Options = { scope: NewSecret['scope']; as: NewSecret['as'] };

export type Deps = {
  projects: Pick<ProjectStore, 'get'>;
  secrets: Pick<SecretStore, 'get' | 'importEnv' | 'list' | 'remove' | 'set'>;
  vault: Pick<Vault, 'of'>;
  changes: Pick<Changes, 'notify'>;
  now: () => number;
};

export function secretRoutes(route: Define, deps: Deps): void {
  route('listSecrets', (call) => listSecrets(deps, call));
  route('getSecret', (call) => getSecret(deps, call));
  route('putSecret', (call) => putSecret(deps, call));
  route('deleteSecret', (call) => deleteSecret(deps, call));
  route('importSecret', (call) => importSecret(deps, call));
}

/** Returns the check of If-Match, which the store calls inside the transaction. */
function requireIfMatch({ user, ifMatch }: { user: Caller; ifMatch: string | undefined }) {
  return (present: ProjectRecord): void => checkIfMatch(ifMatch, projectEtag(present, user.role));
}

function changed(
  deps: Deps,
  { secret, project }: ChangedSecret,
  { user, setEtag }: { user: Caller; setEtag: (etag: string) => void },
): Secret {
  deps.changes.notify('events');
  setEtag(projectEtag(project, user.role));
  return secretView(secret);
}

async function listSecrets(deps: Deps, { params, user, setEtag }: Call<'listSecrets'>) {
  // Read the project first: a change between the reads then makes the ETag stale, not the list.
  const project = await deps.projects.get(params.id);
  const items = (await deps.secrets.list(params.id)).map(secretView);
  setEtag(projectEtag(project, user.role));
  return { items, next_cursor: null };
}

async function getSecret(deps: Deps, { params, user, setEtag }: Call<'getSecret'>) {
  const project = await deps.projects.get(params.id);
  const secret = await deps.secrets.get(params.id, checkedName(params.name));
  setEtag(projectEtag(project, user.role));
  return secretView(secret);
}

async function putSecret(deps: Deps, call: Call<'putSecret'>) {
  const { params, body, user } = call;
  const { value, scope = 'run', as = 'env' } = body;
  const secret = sealed(
    checkedName(params.name),
    value,
    { scope, as },
    await deps.vault.of(params.id),
    user,
  );
  return changed(
    deps,
    await deps.secrets.set(params.id, secret, deps.now(), requireIfMatch(call)),
    call,
  );
}

async function deleteSecret(deps: Deps, call: Call<'deleteSecret'>) {
  await deps.secrets.remove(
    call.params.id,
    checkedName(call.params.name),
    deps.now(),
    requireIfMatch(call),
  );
  deps.changes.notify('events');
}

async function importSecret(deps: Deps, call: Call<'importSecret'>) {
  const { params, user } = call;
  const name = checkedName(params.name);
  const projectVault = await deps.vault.of(params.id);
  const seal = (value: string): NewSecret =>
    sealed(name, value, { scope: 'run', as: 'env' }, projectVault, user);
  const moved = await deps.secrets.importEnv(
    params.id,
    name,
    seal,
    deps.now(),
    requireIfMatch(call),
  );
  deps.changes.notify('policy');
  return changed(deps, moved, call);
}

const secretView = ({ set_at, ...secret }: SecretRecord): Secret => ({
  ...secret,
  set_at: time(set_at),
});

/** Checks and encrypts a value. Throws validation. */
function sealed(
  name: string,
  value: string,
  { scope, as }: Options,
  vault: ProjectVault,
  user: Caller,
): NewSecret {
  const problem = secretValueProblem(value);
  if (problem !== null) throw new DomainError('validation', summaryOf([problem]), [problem]);
  return {
    name,
    sealed: vault.seal(vaultName(name), value),
    fingerprint: vault.fingerprint(vaultName(name), value),
    scope,
    as,
    set_by: user.email,
    bytes: Buffer.byteLength(value),
  };
}

function checkedName(name: string): string {
  const problem = envNameProblem(name);
  if (problem !== null) throw new DomainError('validation', summaryOf([problem]), [problem]);
  return name;
}
