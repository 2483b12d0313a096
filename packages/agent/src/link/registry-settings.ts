/**
 * Fetches the registry settings from the control plane (GET /api/agent/config), and logs in with
 * them.
 */
import type { Logger } from '@berth/kit/log';
import type { Client } from '@berth/wire/client';
import type { AgentConfig } from '@berth/wire/task';
import { logIn, type RegistryLogIn } from '../engine/registry-login.ts';
import { retryUntilAnswered } from './retry.ts';

export type RegistrySettings = {
  /** Returns the settings; null before the first answer. */
  current(): AgentConfig | null;
  /**
   * Requests the settings until the control plane answers, and logs in. A failed login is only
   * logged: each task reports its own registry errors.
   */
  fetch(): Promise<void>;
  /** Fetches the settings if `etag` from the control plane differs from that of the last fetch. */
  announced(etag: string | undefined): Promise<void>;
  /** Returns `{registry}/{project}`; null while the registry is unknown. */
  repositoryOf(project: string): string | null;
};
export type RegistrySettingsDeps = {
  client: Client;
  login: RegistryLogIn;
  signal: AbortSignal;
  /** Called with the registry's address after each fetch. */
  onFetched: (address: string) => void;
  log: Logger;
};

export function createRegistrySettings({
  client,
  login,
  signal,
  onFetched,
  log,
}: RegistrySettingsDeps): RegistrySettings {
  let current: AgentConfig | null = null;
  let knownEtag: string | undefined;
  async function fetch(): Promise<void> {
    const onFailure = (err: unknown): void =>
      log.warn({ err }, 'fetching the configuration failed; will retry');
    const answer = await retryUntilAnswered(() => client.call('agentConfig', { signal }), {
      signal,
      onFailure,
    });
    const problem = await logIn(login, answer, signal);
    if (problem !== null)
      log.warn({ registry: answer.registry_addr, problem }, 'registry login failed');
    current = answer;
    if (answer.registry_addr !== '') onFetched(answer.registry_addr);
  }
  return {
    current: () => current,
    repositoryOf: (project) =>
      current === null || current.registry_addr === ''
        ? null
        : `${current.registry_addr}/${project}`,
    fetch,
    async announced(etag) {
      const isNews = etag !== undefined && etag !== knownEtag;
      const isFirst = knownEtag === undefined;
      knownEtag = etag ?? knownEtag;
      // The first registration starts a fetch anyway.
      if (!isNews || isFirst || current === null) return;
      log.info('the registry settings of the control plane changed; fetching them');
      await fetch();
    },
  };
}

/** Number of kept releases if an older control plane does not send it. */
const KEPT_BY_EARLIER = 3;
/**
 * Returns the number of releases to keep. The agent's own setting can only lower the control
 * plane's. Before the first answer (`settings` is null), all are kept.
 */
export const keptReleases = (
  own: number | undefined,
  settings: Pick<AgentConfig, 'keep_releases'> | null,
): number =>
  settings === null
    ? Number.POSITIVE_INFINITY
    : Math.min(own ?? Number.POSITIVE_INFINITY, settings.keep_releases ?? own ?? KEPT_BY_EARLIER);
