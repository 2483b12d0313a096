/** Checks the certificates of all published hosts, and of Berth's own host. */
import type { LoopDeps } from './deps.ts';

export const certificates =
  ({ source, certificates: watch, ownHost }: LoopDeps) =>
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
