/** Checks the certificates of all published hosts, and of Berth's own host. */
import type { CertificateWatch, ConfigSource } from '../domain/routes/configuration.ts';

export type Deps = {
  source: Pick<ConfigSource, 'current'>;
  /** Unset without an https address in PROXY_PROBE_URLS. */
  certificates?: CertificateWatch;
  /** Host of PUBLIC_URL if that is https. */
  ownHost?: string;
};

export const certificates =
  ({ source, certificates: watch, ownHost }: Deps) =>
  async (signal: AbortSignal): Promise<void> => {
    if (watch === undefined) return;
    const { deployments, domains } = source.current();
    const published = [...deployments.values()].map(({ host, project_id }) => ({
      host,
      project_id,
    }));
    const custom = [...domains].map(([host, project_id]) => ({ host, project_id, custom: true }));
    await watch.check(
      [
        ...(ownHost === undefined ? [] : [{ host: ownHost, project_id: null }]),
        ...published,
        ...custom,
      ],
      signal,
    );
  };
