/**
 * Creates the rules for images of the registry, with all names under which this machine reaches the
 * registry.
 */
import { networkInterfaces } from 'node:os';
import type { AgentConfig } from '@berth/wire/task';
import { type ImageRules, registryNames } from './image-sources.ts';
import { addressesOf } from '../engine/insecure-registries.ts';

export type ImageRuleDeps = {
  registry: () => Pick<AgentConfig, 'registry_addr'> | null;
  /** The setting REGISTRY_URL. */
  url: string | undefined;
  /** The setting BUILD_BASE_IMAGES. */
  shared: readonly string[];
};

export function createImageRules({
  registry,
  url,
  shared,
}: ImageRuleDeps): (repository: string) => Promise<ImageRules> {
  return async (own) => {
    // By the contract, the repository is `{registry}/{project}`.
    const ofTask = own.slice(0, Math.max(0, own.lastIndexOf('/')));
    const { host, pathname } = url === undefined ? { host: '', pathname: '' } : new URL(url);
    const registryAddresses = [
      ofTask,
      registry()?.registry_addr ?? '',
      `${host}${pathname.replace(/\/+$/, '')}`,
    ].filter((name) => name !== '');
    const hosts = [
      ...new Set(
        registryAddresses.map((name) =>
          (name.split('/')[0] ?? '').replace(/:\d+$/, '').toLowerCase(),
        ),
      ),
    ];
    const resolved = new Map(
      await Promise.all(hosts.map(async (name) => [name, await addressesOf(name)] as const)),
    );
    const machine = Object.values(networkInterfaces()).flatMap((all) =>
      (all ?? []).map(({ address }) => address),
    );
    return {
      own,
      registries: registryNames(registryAddresses, (name) => resolved.get(name) ?? [], machine),
      shared,
    };
  };
}
