/**
 * Problems that need a person. The control plane finds them, so no page has to read all projects.
 */
import { useEffect } from 'react';
import { useApiList } from '../api/queries.ts';

/**
 * Reads failed deployments that no newer deployment replaced, and unhealthy running deployments.
 */
export const useAttention = () =>
  useApiList('listDeployments', { query: { attention: true, limit: 200 } });

/** Reads all pages of a list. Use it only for lists with at most a few hundred rows. */
export function useAll<L extends { more: (() => void) | null }>(list: L): L {
  useEffect(() => list.more?.(), [list.more]);
  return list;
}
