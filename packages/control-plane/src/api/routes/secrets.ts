/** Routes of the secrets of a project. No answer, event or error has a value. */
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
} from '../../domain/secrets/secrets.ts';
import type { ProjectVault } from '../../domain/secrets/vault.ts';
import type { Caller } from '../auth/callers.ts';
import type { Define } from '../define.ts';
import type { ApiDeps } from '../deps.ts';
import { checkIfMatch } from '../etag.ts';
import { summaryOf } from '../problem.ts';
import { projectEtag } from '../resource-etags.ts';
import { time } from '../views.ts';

type Options = { scope: NewSecret['scope']; as: NewSecret['as'] };

export function secretRoutes(route: Define, { stores, vault, changes, now }: ApiDeps): void {
  /** Returns the check of If-Match. The store calls it inside the transaction. */
  const requireIfMatch =
    ({ user, ifMatch }: { user: Caller; ifMatch: string | undefined }) =>
    (present: ProjectRecord): void =>
      checkIfMatch(ifMatch, projectEtag(present, user.role));

  const changed = (
    { secret, project }: ChangedSecret,
    { user, setEtag }: { user: Caller; setEtag: (etag: string) => void },
  ): Secret => {
    changes.notify('events');
    setEtag(projectEtag(project, user.role));
    return secretView(secret);
  };

  route('listSecrets', async ({ params, user, setEtag }) => {
    // The project first: a change in between makes the ETag stale and not the list.
    const project = await stores.projects.get(params.id);
    const items = (await stores.secrets.list(params.id)).map(secretView);
    setEtag(projectEtag(project, user.role));
    return { items, next_cursor: null };
  });

  route('getSecret', async ({ params, user, setEtag }) => {
    const project = await stores.projects.get(params.id);
    const secret = await stores.secrets.get(params.id, checkedName(params.name));
    setEtag(projectEtag(project, user.role));
    return secretView(secret);
  });

  route('putSecret', async (call) => {
    const { params, body, user } = call;
    const { value, scope = 'run', as = 'env' } = body;
    const secret = sealed(
      checkedName(params.name),
      value,
      { scope, as },
      await vault.of(params.id),
      user,
    );
    return changed(await stores.secrets.set(params.id, secret, now(), requireIfMatch(call)), call);
  });

  route('deleteSecret', async (call) => {
    await stores.secrets.remove(
      call.params.id,
      checkedName(call.params.name),
      now(),
      requireIfMatch(call),
    );
    changes.notify('events');
  });

  route('importSecret', async (call) => {
    const { params, user } = call;
    const name = checkedName(params.name);
    const projectVault = await vault.of(params.id);
    const seal = (value: string): NewSecret =>
      sealed(name, value, { scope: 'run', as: 'env' }, projectVault, user);
    const moved = await stores.secrets.importEnv(
      params.id,
      name,
      seal,
      now(),
      requireIfMatch(call),
    );
    changes.notify('policy');
    return changed(moved, call);
  });
}

const secretView = ({ set_at, ...secret }: SecretRecord): Secret => ({
  ...secret,
  set_at: time(set_at),
});

/** Throws validation. */
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
