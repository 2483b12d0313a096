/**
 * Envelope encryption: SECRETS_KEY wraps one key for each project, and the project's key seals its
 * values. After a change of SECRETS_KEY, the control plane wraps the project keys again at its
 * start; the sealed values stay unchanged.
 */
import { createHmac } from 'node:crypto';
import { failPoint } from '@berth/kit/fail-point';
import type { Live } from '@berth/kit/live';
import { DomainError } from '../domain/platform/errors.ts';
import type {
  KeyCounts,
  ProjectKeyRecord,
  ProjectKeyStore,
  ProjectVault,
  Vault,
} from '../domain/secrets/vault.ts';
import { createCipher, derive, newKey } from './cipher.ts';
import type { KeyRing } from './key-ring.ts';

const REWRAP_PAGE = 500;

export function createVault(deps: {
  keys: ProjectKeyStore;
  ring: Live<KeyRing>;
  now: () => number;
}): Vault {
  const { keys, now } = deps;

  async function of(projectId: string): Promise<ProjectVault> {
    const record =
      (await keys.get(projectId)) ??
      (await keys.setOnce(wrap(deps.ring(), projectId, newKey()), now()));
    // Reads the ring only now: a reload might have replaced it meanwhile and wrapped the key again.
    return projectVault(projectId, openProjectKey(deps.ring(), record));
  }
  return {
    of,
    seal: async (projectId, name, value) => (await of(projectId)).seal(name, value),
    open: async (projectId, name, sealed) => (await of(projectId)).open(name, sealed),
    fingerprint: async (projectId, name, value) => (await of(projectId)).fingerprint(name, value),
    async keys() {
      const ring = deps.ring();
      const counts: KeyCounts = { all: 0, earlier: 0, locked: 0 };
      for (const [id, count] of await keys.counts()) {
        counts.all += count;
        if (!ring.has(id)) counts.locked += count;
        else if (id !== ring.currentId) counts.earlier += count;
      }
      return counts;
    },
  };
}

/** Wraps every project key with the current key. Returns the number of keys that it wrapped. */
export async function rewrapAll(keys: ProjectKeyStore, ring: KeyRing): Promise<number> {
  let wrapped = 0;
  for (let after = ''; ; ) {
    const page = await keys.wrappedByOthers(ring.currentId, after, REWRAP_PAGE);
    for (const record of page) {
      await keys.rewrap(
        wrap(ring, record.project_id, openProjectKey(ring, record)),
        record.wrapped,
      );
      wrapped += 1;
      await failPoint('rewrap.after');
    }
    const last = page.at(-1);
    if (last === undefined || page.length < REWRAP_PAGE) return wrapped;
    after = last.project_id;
  }
}

const wrap = (ring: KeyRing, projectId: string, key: Buffer): ProjectKeyRecord => ({
  project_id: projectId,
  wrapped: ring.seal(['project key', projectId], key),
  wrapped_by: ring.currentId,
});

/** Decrypts the key of a project. Throws secrets_locked. */
export function openProjectKey(
  ring: KeyRing,
  { project_id, wrapped, wrapped_by }: ProjectKeyRecord,
): Buffer {
  const key = ring.open(['project key', project_id], wrapped);
  if (key === null)
    throw new DomainError(
      'secrets_locked',
      `SECRETS_KEY does not have the key ${wrapped_by}, which encrypts the secrets of this project`,
    );
  return key;
}

function projectVault(projectId: string, key: Buffer): ProjectVault {
  const cipher = createCipher(key, 'seal');
  const fingerprintKey = derive(key, 'fingerprint');
  return {
    seal: (name, value) => cipher.seal([projectId, name], Buffer.from(value)),
    open(name, sealed) {
      try {
        return cipher.open([projectId, name], sealed);
      } catch (error) {
        throw new DomainError(
          'secrets_locked',
          `the stored value of ${name} does not belong to this project and name: ${String(error)}`,
        );
      }
    },
    fingerprint: (name, value) =>
      createHmac('sha256', fingerprintKey)
        .update(`${name}\n`)
        .update(Buffer.from(value))
        .digest('hex')
        .slice(0, 16),
  };
}
