/** Converts lines of runtime logs to the form of the API. */
import type { QueryOf } from '@berth/wire/routes';
import type { ContainerExit, RuntimeLine, RuntimeLogs } from '@berth/wire/runtime';
import { isAskedFor } from '../../domain/deployments/instance.ts';
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

/** The instance of a line. */
export type LineOf = { deployment_id: string; process: string; number: number };

export const lineView = (
  { deployment_id, process, number }: LineOf,
  { at, stream, text }: ChannelLine,
  offset: number,
): RuntimeLine => ({
  at: correctedTime(at, offset),
  deployment_id,
  process,
  instance: number,
  stream,
  text,
});

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

/** Returns a sentence for a query that matches no running instance. */
export function nothingRuns({ process, instance }: LogQuery): string {
  if (process === undefined && instance === undefined) return 'nothing of this project runs now';
  if (instance === undefined) return `no instance of ${process} runs now`;
  return `no instance ${instance}${process === undefined ? '' : ` of ${process}`} runs now`;
}

export const endOf = ({ container, exit_code, finished_at }: ExitRecord): string => {
  const when = finished_at === null ? '' : ` at ${time(finished_at)}`;
  const code = exit_code === null ? '' : ` with exit code ${exit_code}`;
  return `${container}, which ended${when}${code}`;
};

/** Returns the newest end of each instance that the query asks for. */
export function newestEnds(exits: readonly ExitRecord[], query: LogQuery): ExitRecord[] {
  const newest = new Map<string, ExitRecord>();
  for (const exit of exits) {
    const key = `${exit.process} ${exit.instance}`;
    if (!newest.has(key) && isAskedFor(query, { process: exit.process, number: exit.instance }))
      newest.set(key, exit);
  }
  return [...newest.values()];
}

/**
 * Returns the stored last lines of the newest ended container of each instance, within the range of
 * the query.
 */
export function storedLines(
  exits: readonly ExitRecord[],
  query: LogQuery,
  tail: number,
): RuntimeLogs {
  const ends = newestEnds(exits, query);
  if (ends.length === 0)
    return {
      lines: [],
      truncated: false,
      unavailable: 'the container is gone, and its end is not stored',
    };
  const lines = mergedByTime(ends.map((exit) => linesOfEnd(exit, query)));
  const shown = newestLines(lines, tail);
  return {
    lines: shown,
    truncated: ends.some(({ truncated }) => truncated) || lines.length > shown.length,
  };
}

function linesOfEnd(
  { deployment_id, process, instance, lines }: ExitRecord,
  query: LogQuery,
): RuntimeLine[] {
  const { since, until } = rangeOf(query);
  return lines
    .filter(
      ({ at, stream }) =>
        (since === null || Date.parse(at) >= since) &&
        (until === null || Date.parse(at) <= until) &&
        (query.stream === undefined || stream === query.stream),
    )
    .map((line) => ({ ...line, deployment_id, process, instance }));
}

export const newestLines = <L>(lines: readonly L[], tail: number): L[] =>
  tail === 0 ? [] : lines.slice(-tail);

export const exitView = ({ started_at, finished_at, ...exit }: ExitRecord): ContainerExit => ({
  ...exit,
  started_at: started_at === null ? null : time(started_at),
  finished_at: finished_at === null ? null : time(finished_at),
});
