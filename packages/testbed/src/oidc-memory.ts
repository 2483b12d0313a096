/**
 * The in-memory store of an OpenID provider. It survives a rebuild of the provider and is not
 * shared.
 */
import type { Adapter, AdapterFactory, AdapterPayload } from 'oidc-provider';

export function createOidcMemory(): AdapterFactory {
  const kept = new Map<string, AdapterPayload>();
  return (model): Adapter => {
    const key = (id: string): string => `${model} ${id}`;
    const find = (
      matches: (payload: AdapterPayload) => boolean,
    ): Promise<AdapterPayload | undefined> =>
      Promise.resolve(
        [...kept].find(([k, payload]) => k.startsWith(`${model} `) && matches(payload))?.[1],
      );
    return {
      upsert: (id, payload) => Promise.resolve(void kept.set(key(id), payload)),
      find: (id) => Promise.resolve(kept.get(key(id))),
      findByUserCode: (userCode) => find((payload) => payload.userCode === userCode),
      findByUid: (uid) => find((payload) => payload.uid === uid),
      consume(id) {
        const payload = kept.get(key(id));
        if (payload !== undefined) payload['consumed'] = Math.floor(Date.now() / 1000);
        return Promise.resolve();
      },
      destroy: (id) => Promise.resolve(void kept.delete(key(id))),
      revokeByGrantId(grantId) {
        for (const [k, payload] of kept) if (payload.grantId === grantId) kept.delete(k);
        return Promise.resolve();
      },
    };
  };
}
