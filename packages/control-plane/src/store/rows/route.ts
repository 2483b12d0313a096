import type { RouteRecord } from '../../domain/platform/records.ts';

/**
 * Converts the column `stopped` to the optional field of the record, which only a stopped route
 * has.
 */
export const routeOf = <T extends { stopped: number }>({
  stopped,
  ...row
}: T): Omit<T, 'stopped'> & Pick<RouteRecord, 'stopped'> => ({
  ...row,
  ...(stopped !== 0 && { stopped: true as const }),
});
