/** `berth audit`: shows who changed what. */
import { ROUTES } from '@berth/wire/routes';
import { allPages } from '../project/pages.ts';
import { table } from '../output/text.ts';
import { type Command } from './command.ts';
import { flagsOf } from './flags.ts';
import { limitOf } from './limit.ts';
import { positive } from './number.ts';

export const AUDIT_COMMANDS: readonly Command[] = [
  {
    name: 'audit',
    summary: ROUTES.audit.summary,
    options: [
      ...flagsOf(ROUTES.audit.query, { leaveOut: ['limit', 'cursor'] }).options,
      { flags: '-n, --limit <number>', doc: 'at most this many (default 50)', parse: positive },
    ],
    routes: ['audit'],
    async run(cli, _, options) {
      const query = flagsOf(ROUTES.audit.query, { leaveOut: ['limit', 'cursor'] }).read(options);
      const limit = limitOf(options['limit']);
      const items = await allPages(
        (cursor) =>
          cli
            .client()
            .call('audit', { query: { limit: Math.min(limit, 200), ...query, ...cursor } }),
        limit,
      );
      cli.print({ items }, () =>
        table(items, [
          { head: 'AT', of: (a) => a.at },
          { head: 'USER', of: (a) => a.user ?? '–' },
          { head: 'ACTION', of: (a) => a.action },
          { head: 'TARGET', of: (a) => a.target ?? '' },
          {
            head: 'OUTCOME',
            of: (a) => (a.code === null ? a.outcome : `${a.outcome} (${a.code})`),
          },
          { head: 'ADDRESS', of: (a) => a.address },
          { head: 'DETAIL', of: (a) => a.detail ?? '' },
        ]),
      );
    },
  },
];
