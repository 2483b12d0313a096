/** The feed of events: what changed, in order. Events are hints: who needs the state reads the thing itself. */
import { type Static, Type } from 'typebox';
import { Id, Time } from './vocabulary.ts';

/** `kind` is the noun and what happened to it (`deployment.running`, `node.offline`), or `gap`. A field that says nothing is left out. */
export const Event = Type.Object({
  seq: Type.Integer({ minimum: 0, description: 'order of the events; of a gap: the oldest event that is still kept' }),
  at: Time,
  kind: Type.String({ description: 'noun and verb, such as `deployment.running`; `gap`: events are missing here' }),
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
  next: Type.Integer({ description: 'pass as `after` for what follows' }),
  gap: Type.Boolean({ description: 'events after `after` are gone; the first item then is of kind `gap`' }),
});
