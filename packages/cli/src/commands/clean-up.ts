/** Commands for the registry clean-up: show its state, and request a clean-up. */
import type { CleanUp, CleanUps } from '@berth/wire/clean-up';
import { ROUTES } from '@berth/wire/routes';
import { sizeText } from '@berth/wire/size-text';
import type { Cli } from '../cli.ts';
import { record } from '../output/text.ts';
import { ago } from '../output/units.ts';
import type { Command } from './command.ts';

export const CLEAN_UP_COMMANDS: readonly Command[] = [
  {
    name: 'clean-up',
    summary: ROUTES.cleanUps.summary,
    options: [
      { flags: '--now', doc: 'start a clean-up now (admins); new builds wait until it ends' },
    ],
    routes: ['cleanUps', 'startCleanUp'],
    async run(cli, _, { now }) {
      const client = cli.client();
      const state =
        now === true ? await client.call('startCleanUp', {}) : await client.call('cleanUps', {});
      cli.print(state, () => textOf(cli, state));
    },
  },
];

const textOf = (
  cli: Cli,
  { unavailable, keep_releases, interval_seconds, next_at, current, items }: CleanUps,
): string =>
  record([
    ['registry', unavailable ?? null],
    ['keeps', `the images of the last ${keep_releases} releases of each project that ran`],
    ['now', current === null ? null : lineOf(cli, current)],
    ['last', items[0] === undefined ? 'none yet' : lineOf(cli, items[0])],
    [
      'next',
      next_at ?? (interval_seconds === null ? 'only on request: berth clean-up --now' : null),
    ],
  ]);

function lineOf(cli: Cli, one: CleanUp): string {
  const at = ago(one.finished_at ?? one.started_at ?? one.requested_at, cli.io.now());
  if (one.state === 'waiting') return `waiting: ${one.waiting ?? 'starts soon'}`;
  if (one.state === 'running')
    return `running since ${one.started_at}: ${one.images} images to remove; new builds wait`;
  if (one.error !== null) return `failed ${at}: ${one.error.message}`;
  const { bytes_before, bytes_after } = one;
  return [
    `${at}: ${one.removed ?? 0} images removed${freedText(bytes_before, bytes_after)}`,
    ...(one.images_left === 0 ? [] : [`${one.images_left} more follow soon`]),
    ...((one.missing ?? 0) === 0 ? [] : [`${one.missing} kept images are missing in the registry`]),
  ].join('; ');
}

function freedText(before: number | null, after: number | null): string {
  if (before === null || after === null) return '';
  return `, ${sizeText(Math.max(0, before - after))} freed, ${sizeText(after)} left`;
}
