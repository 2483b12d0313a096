/**
 * Finds out which registries the engine contacts over plain http, from the engine's setting
 * insecure-registries.
 */
import { lookup } from 'node:dns/promises';
import { BlockList, isIPv6 } from 'node:net';
import type { EngineClient } from './engine-client.ts';

/** Tells whether the engine lists the registry `host` (`name` or `name:port`) as insecure. */
export type IsInsecure = (host: string, signal: AbortSignal) => Promise<boolean>;

/** `RegistryConfig` of the engine's info. */
export type EngineRegistries = {
  InsecureRegistryCIDRs?: readonly string[] | null;
  IndexConfigs?: Record<string, { Secure?: boolean } | null> | null;
};

export const createIsInsecure =
  (engine: EngineClient): IsInsecure =>
  async (host, signal) => {
    const { RegistryConfig } = await engine.call('GET /info', { signal, timeoutMs: 15_000 });
    return listsInsecure(RegistryConfig ?? {}, host, addressesOf);
  };

/** Resolves the addresses of `name`; returns an empty list if the name cannot be resolved. */
export const addressesOf = async (name: string): Promise<string[]> =>
  (await lookup(name, { all: true }).catch(() => [])).map(({ address }) => address);

/**
 * Decides as the engine does: first by the registry’s name and port, then by the addresses of the
 * name.
 */
export async function listsInsecure(
  config: EngineRegistries,
  host: string,
  addresses: (name: string) => Promise<string[]>,
): Promise<boolean> {
  const named = config.IndexConfigs?.[host]?.Secure;
  if (named !== undefined) return !named;
  const networks = new BlockList();
  for (const cidr of config.InsecureRegistryCIDRs ?? []) {
    const [network = '', bits = ''] = cidr.split('/');
    networks.addSubnet(network, Number(bits), isIPv6(network) ? 'ipv6' : 'ipv4');
  }
  const name = new URL(`http://${host}`).hostname.replace(/^\[|\]$/g, '');
  const all = /^[\d.]+$/.test(name) || isIPv6(name) ? [name] : await addresses(name);
  return all.some((address) => networks.check(address, isIPv6(address) ? 'ipv6' : 'ipv4'));
}
