/** Sends berth.toml of a build to the control plane, which checks it before the build. */
import { ApiError, type Client } from '@berth/wire/client';
import type { ConfigFile, ConfigFileAnswer } from '@berth/wire/task';
import { retryUntilAnswered } from './retry.ts';

/**
 * Returns the answer; null if the control plane has no such request, because it went back to an
 * earlier version.
 */
export const createConfigCheck =
  (client: Client) =>
  async (
    taskId: string,
    lease: string,
    file: ConfigFile,
    signal: AbortSignal,
  ): Promise<ConfigFileAnswer | null> => {
    const request = {
      params: { id: taskId },
      headers: { 'x-lease-token': lease },
      body: file,
      signal,
    };
    try {
      return await retryUntilAnswered(() => client.call('agentConfigFile', request), { signal });
    } catch (error) {
      if (error instanceof ApiError && error.status === 404) return null;
      throw error;
    }
  };
