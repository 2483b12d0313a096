/** Needs of people, as the control plane finds them: no page reads all projects for it. */
import { useEffect } from 'react';
import { useApiList } from '../api/queries.ts';

/** Failed deployments that nothing newer replaced, and running ones that are not healthy. */
export const useAttention = () =>
  useApiList('listDeployments', { query: { attention: true, limit: 200 } });

/** All rows of a list that has at most some hundred. */
export function useAll<L extends { more: (() => void) | null }>(list: L): L {
  useEffect(() => list.more?.(), [list.more]);
  return list;
}
