/** Decides which ssh host keys Berth trusts. Pure. */
import type { HostKeySource } from '@berth/wire/git';
import { DomainError, invalid } from '../platform/errors.ts';

export type HostKey = { fingerprint: string; key_type: string | null };
export type TrustedKey = HostKey & {
  source: HostKeySource;
  added_by: string | null;
  added_at: number | null;
};
/** Row of the table of host keys. `presented`: a builder saw the key, but nobody has trusted it. */
export type StoredKey = HostKey & {
  host: string;
  state: 'admin' | 'builder' | 'presented';
  added_by: string | null;
  at: number;
};

/**
 * Value of `added_by` for a presented key that only `look` tasks without a project have seen. Any
 * user can choose the host of such a task.
 */
export const BY_LOOK = 'look';

/** Maximum number of hosts in the table, and of keys of one host. */
export const MAX_HOSTS = 200;
export const MAX_KEYS = 20;

const ED25519 = 'ssh-ed25519';
const ECDSA = 'ecdsa-sha2-nistp256';
const RSA = 'ssh-rsa';

/**
 * Host keys that the forges publish:
 * https://docs.github.com/en/authentication/keeping-your-account-and-data-secure/githubs-ssh-key-fingerprints
 * https://docs.gitlab.com/user/gitlab_com/#ssh-host-keys-fingerprints
 * https://bitbucket.org/blog/ssh-host-key-changes (its RSA key is not pinned; ssh uses another key)
 * https://docs.codeberg.org/security/ssh-fingerprint/
 */
export const PINNED: Readonly<Record<string, readonly HostKey[]>> = {
  'github.com': [
    { key_type: ED25519, fingerprint: 'SHA256:+DiY3wvvV6TuJJhbpZisF/zLDA0zPMSvHdkr4UvCOqU' },
    { key_type: ECDSA, fingerprint: 'SHA256:p2QAMXNIC1TJYWeIOttrVc98/R1BUFWu3/LiyKgUfQM' },
    { key_type: RSA, fingerprint: 'SHA256:uNiVztksCsDhcc0u9e8BujQXVUpKZIDTMczCvj3tD2s' },
  ],
  'gitlab.com': [
    { key_type: ED25519, fingerprint: 'SHA256:eUXGGm1YGsMAS7vkcx6JOJdOGHPem5gQp4taiCfCLB8' },
    { key_type: ECDSA, fingerprint: 'SHA256:HbW3g8zUjNSksFbqTiUWPWg2Bq1x8xdGUrliXFzSnUw' },
    { key_type: RSA, fingerprint: 'SHA256:ROQFvPThGrW4RuWLoL9tq9I9zJ42fK4XywyRtbOz/EQ' },
  ],
  'bitbucket.org': [
    { key_type: ED25519, fingerprint: 'SHA256:ybgmFkzwOSotHTHLJgHO0QN8L0xErw6vd0VhFA9m3SM' },
    { key_type: ECDSA, fingerprint: 'SHA256:FC73VB6C4OQLSCrjEayhMp9UMxS97caD/Yyi2bhW/J0' },
  ],
  'codeberg.org': [
    { key_type: ED25519, fingerprint: 'SHA256:mIlxA9k46MmM6qdJOdMnAQpzGxF4WIVVL+fj+wZbw0g' },
    { key_type: ECDSA, fingerprint: 'SHA256:T9FYDEHELhVkulEKKwge5aVhVTbqCW0MIRwAfpARs/E' },
    { key_type: RSA, fingerprint: 'SHA256:6QQmYi4ppFS4/+zSZ5S4IU+4sa6rwvQ4PbhCtPEBekQ' },
  ],
};

const HOST = /^([a-z0-9]([a-z0-9_.-]{0,251}[a-z0-9])?|\[[0-9a-f:.]+\])(?::([1-9]\d{0,4}))?$/;

/** Returns `host`, or `host:port` if the port is not 22. Throws validation. */
export function hostName(given: string): string {
  const [, name, , port] = HOST.exec(given.toLowerCase().replace(/\.(?=:\d+$|$)/, '')) ?? [];
  if (name === undefined || (port !== undefined && Number(port) > 65_535))
    throw invalid(
      'host',
      'host',
      'must be a host name or an address, followed by :port if the port is not 22; an IPv6 ' +
        'address is in [ ]',
    );
  return port === undefined || port === '22' ? name : `${name}:${port}`;
}

/** Returns the trusted keys of a host. A stored key replaces the pinned key of its type. */
export function trustedKeys(host: string, stored: readonly StoredKey[]): TrustedKey[] {
  const own = stored.flatMap(({ fingerprint, key_type, state, added_by, at }) =>
    state === 'presented' ? [] : [{ fingerprint, key_type, source: state, added_by, added_at: at }],
  );
  const pinned = (Object.hasOwn(PINNED, host) ? (PINNED[host] ?? []) : []).filter(
    (pin) =>
      !own.some((key) => key.key_type === pin.key_type || key.fingerprint === pin.fingerprint),
  );
  return [
    ...pinned.map((pin) => ({ ...pin, source: 'berth' as const, added_by: null, added_at: null })),
    ...own,
  ];
}

/** Changes to the stored keys of one host. */
export type HostKeyChange = { remove: string[]; put: StoredKey[] };

/**
 * Trusts a key. The key replaces a trusted key of the same type, because a host has one key of each
 * type and an old key might be stolen. The key type comes from the stored or pinned key, else from
 * the request. Throws validation.
 */
export function trust(
  host: string,
  stored: readonly StoredKey[],
  presented: HostKey,
  by: string,
  at: number,
): HostKeyChange {
  const storedKey = stored.find((key) => key.fingerprint === presented.fingerprint);
  const pinnedType = trustedKeys(host, []).find(
    (key) => key.fingerprint === presented.fingerprint,
  )?.key_type;
  const key_type = storedKey?.key_type ?? pinnedType ?? presented.key_type;
  if (storedKey !== undefined && storedKey.state !== 'presented' && storedKey.key_type === key_type)
    return { remove: [], put: [] };
  const replaced = stored.filter(
    (key) =>
      key.fingerprint !== presented.fingerprint &&
      key.state !== 'presented' &&
      key.key_type !== null &&
      key.key_type === key_type,
  );
  const count = stored.filter((key) => key.state !== 'presented').length - replaced.length;
  if (count >= MAX_KEYS)
    throw invalid(
      'fingerprint',
      'max_items',
      `the host has ${MAX_KEYS} trusted keys already; delete the host first`,
    );
  return {
    remove: replaced.map((key) => key.fingerprint),
    put: [{ host, fingerprint: presented.fingerprint, key_type, state: 'admin', added_by: by, at }],
  };
}

/**
 * Records the keys that a host presented: fills in missing types of trusted keys, and keeps the
 * newest untrusted keys. `by`: BY_LOOK, or null for a task of a project. A key that both such a
 * `look` task and a project saw counts as seen by a project.
 */
export function presented(
  host: string,
  stored: readonly StoredKey[],
  seen: readonly HostKey[],
  at: number,
  by: typeof BY_LOOK | null = null,
): HostKeyChange {
  const trusted = trustedKeys(host, stored);
  const put: StoredKey[] = [];
  for (const { fingerprint, key_type } of seen.slice(0, MAX_KEYS)) {
    const storedKey = stored.find((key) => key.fingerprint === fingerprint);
    if (storedKey !== undefined && storedKey.state !== 'presented') {
      if (storedKey.key_type === null) put.push({ ...storedKey, key_type });
    } else if (!trusted.some((key) => key.fingerprint === fingerprint))
      put.push({
        host,
        fingerprint,
        key_type,
        state: 'presented',
        added_by: storedKey === undefined || storedKey.added_by === BY_LOOK ? by : null,
        at,
      });
  }
  const old = stored.filter(
    (key) => key.state === 'presented' && !put.some((p) => p.fingerprint === key.fingerprint),
  );
  const surplus = old.length + put.length - MAX_KEYS;
  const oldest = old.sort((a, b) => a.at - b.at).slice(0, Math.max(0, surplus));
  return { remove: oldest.map((key) => key.fingerprint), put };
}

/**
 * Returns the keys of a builder that can be imported: keys of hosts without a trusted key. Skips
 * invalid hosts and never throws.
 */
export function importable(
  keys: readonly (HostKey & { host: string })[],
  stored: readonly StoredKey[],
  at: number,
): StoredKey[] {
  const storedByHost = new Map<string, StoredKey>();
  for (const { host: given, fingerprint, key_type } of keys) {
    const host = validName(given);
    if (
      host === null ||
      trustedKeys(
        host,
        stored.filter((key) => key.host === host),
      ).length > 0
    )
      continue;
    storedByHost.set(`${host} ${key_type}`, {
      host,
      fingerprint,
      key_type,
      state: 'builder',
      added_by: null,
      at,
    });
  }
  return [...storedByHost.values()];
}

function validName(given: string): string | null {
  try {
    return hostName(given);
  } catch (error) {
    if (error instanceof DomainError) return null;
    throw error;
  }
}
