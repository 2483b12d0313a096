/**
 * Proves that the keys decrypt the database: decrypts the check value in `meta` and the key of
 * every project.
 */
import { SECRETS_CHECK, sealedBy } from '../domain/secrets/sealed.ts';
import type { MetaStore } from '../domain/platform/meta-store.ts';
import type { ProjectKeyStore } from '../domain/secrets/vault.ts';
import type { KeyRing } from './key-ring.ts';
import { openProjectKey } from './vault.ts';

/** Check value that the current key seals at every start of a control plane (open.ts). */
export const CHECK = { aad: ['check'], value: Buffer.from('berth') };
const PAGE = 500;

/** Returns the number of project keys that were decrypted. Throws secrets_locked. */
export async function openAll(
  ring: KeyRing,
  { keys, meta }: { keys: ProjectKeyStore; meta: MetaStore },
): Promise<number> {
  const check = await meta.get(SECRETS_CHECK);
  if (check !== null && ring.open(CHECK.aad, check)?.equals(CHECK.value) !== true)
    throw new Error(
      'SECRETS_KEY does not open the check of the key ' +
        `${sealedBy(check) ?? 'of an unknown format'} in the database`,
    );
  let opened = 0;
  for (let after = ''; ; ) {
    // Reads all keys, because no key has an empty id.
    const page = await keys.wrappedByOthers('', after, PAGE);
    for (const record of page) openProjectKey(ring, record);
    opened += page.length;
    const last = page.at(-1);
    if (last === undefined || page.length < PAGE) return opened;
    after = last.project_id;
  }
}
