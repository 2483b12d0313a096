/** Converts lines of runtime logs to the form of the API. */
import type { QueryOf } from '@berth/wire/routes';
import type { ContainerExit, RuntimeLine, RuntimeLogs } from '@berth/wire/runtime';
import type { ExitRecord } from '../../domain/deployments/runtime-logs.ts';
import { time } from '../views.ts';
import type { ChannelLine } from './channel.ts';

export type LogQuery = QueryOf<'projectLogs'>;

export const rangeOf = ({
  since,
  until,
}: LogQuery): { since: number | null; until: number | null } => ({
  since: since === undefined ? null : Date.parse(since),
  until: until === undefined ? null : Date.parse(until),
});

/** Returns a time of the node's clock, corrected by `offset` if that clock is wrong. */
export const correctedTime = (at: string, offset: number): string =>
  offset === 0 ? at : time(Date.parse(at) + offset);

export const lineView = (
  deployment_id: string,
  { at, stream, text }: ChannelLine,
  offset: number,
): RuntimeLine => ({ at: correctedTime(at, offset), deployment_id, stream, text });

/** Merges the lines of several logs by their times. The lines of one log keep their order. */
export const mergedByTime = (logs: readonly (readonly RuntimeLine[])[]): RuntimeLine[] =>
  logs
    .flatMap((lines) => {
      let newest = -Infinity;
      return lines.map((line) => {
        newest = Math.max(newest, Date.parse(line.at));
        return { line, newest };
      });
    })
    .sort((a, b) => a.newest - b.newest)
    .map(({ line }) => line);

export const NOTHING_RUNS = 'nothing of this project runs now';

export const endOf = ({ container, exit_code, finished_at }: ExitRecord): string => {
  const when = finished_at === null ? '' : ` at ${time(finished_at)}`;
  const code = exit_code === null ? '' : ` with exit code ${exit_code}`;
  return `${container}, which ended${when}${code}`;
};

/** Returns the stored last lines of the newest ended container, within the range of the query. */
export function storedLines(
  exits: readonly ExitRecord[],
  query: LogQuery,
  tail: number,
): RuntimeLogs {
  const [newest] = exits;
  if (newest === undefined)
    return {
      lines: [],
      truncated: false,
      unavailable: 'the container is gone, and its end is not stored',
    };
  const { since, until } = rangeOf(query);
  const inRange = newest.lines.filter(
    ({ at, stream }) =>
      (since === null || Date.parse(at) >= since) &&
      (until === null || Date.parse(at) <= until) &&
      (query.stream === undefined || stream === query.stream),
  );
  const { deployment_id } = newest;
  const lines = newestLines(inRange, tail).map((line) => ({ ...line, deployment_id }));
  return { lines, truncated: newest.truncated || inRange.length > lines.length };
}

export const newestLines = <L>(lines: readonly L[], tail: number): L[] =>
  tail === 0 ? [] : lines.slice(-tail);

export const exitView = ({ started_at, finished_at, ...exit }: ExitRecord): ContainerExit => ({
  ...exit,
  started_at: started_at === null ? null : time(started_at),
  finished_at: finished_at === null ? null : time(finished_at),
});
