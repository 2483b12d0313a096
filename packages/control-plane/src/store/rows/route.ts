import { defined } from '@berth/kit/defined';
import type { RouteRecord } from '../../domain/platform/records.ts';

/**
 * Converts the columns `stopped` and `servers` to the optional fields of the record.
 */
export const routeOf = <T extends { stopped: number; servers: string | null }>({
  stopped,
  servers,
  ...row
}: T): Omit<T, 'stopped' | 'servers'> & Pick<RouteRecord, 'stopped' | 'servers'> => ({
  ...row,
  ...(stopped !== 0 && { stopped: true as const }),
  ...defined({
    servers: servers === null ? undefined : (JSON.parse(servers) as RouteRecord['servers']),
  }),
});
