/**
 * The feed of events: all changes, in order. An event is only a hint; clients that need the state
 * must read the resource.
 */
import { type Static, Type } from 'typebox';
import { Id, Time } from './vocabulary.ts';

/**
 * `kind` is a resource and its change (`deployment.running`, `node.offline`), or `gap`. Fields that
 * do not apply are absent.
 */
export const Event = Type.Object({
  seq: Type.Integer({
    minimum: 0,
    description: 'sequence number; for `gap`: the number of the oldest event that is still stored',
  }),
  at: Time,
  kind: Type.String({
    description:
      'noun and change, such as `deployment.running`; `gap`: earlier events were deleted',
  }),
  project_id: Type.Optional(Id),
  deployment_id: Type.Optional(Id),
  node_id: Type.Optional(Id),
  dataset_id: Type.Optional(Id),
  user_id: Type.Optional(Id),
  message: Type.String(),
});
export type Event = Static<typeof Event>;

export const EventPage = Type.Object({
  items: Type.Array(Event),
  next: Type.Integer({ description: 'pass it as `after` to get the following events' }),
  previous: Type.Optional(
    Type.Integer({
      description:
        'pass it as `before` to get the earlier events; left out with `after`, and if there ' +
        'are none',
    }),
  ),
  gap: Type.Boolean({
    description:
      'true if events after `after` were already deleted; the first item then has the kind `gap`',
  }),
});
