/** A row of the route table (routes.ts): what the server, the client and the documents are made from. */
import { type TSchema, Type } from 'typebox';
import { Id, type Role } from './vocabulary.ts';

/** `public`: nobody is asked; `agent`: X-Agent-Secret; `gateway`: X-Gateway-Secret; a role: that role or a higher one (viewer < developer < admin). */
export type Who = 'public' | 'agent' | 'gateway' | Role;

export type Route = {
  method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  path: string;
  who: Who;
  summary: string;
  params?: TSchema;
  query?: TSchema;
  body?: TSchema;
  /** A body may be left out altogether. */
  bodyOptional?: true;
  status: number;
  /** Where what a 201 or 202 answers with is found; left out: the path up to `:id`, or the path and `/:id`. */
  location?: string;
  answer?: TSchema;
};

export const ById = Type.Object({ id: Id });
/** An id or a name; which kind follows from the path (control-plane/src/api/names.ts). */
export const ByName = Type.Object({ id: Type.String({ minLength: 1, maxLength: 300, description: 'id or name' }) });
/** The one with exactly this name. */
export const NameFilter = { name: Type.Optional(Type.String({ minLength: 1, maxLength: 253, description: 'exactly this name' })) };
/** Seconds that a request may be held, where its caller hears otherwise if the connection died: agents, from the answers to their registers. */
export const MAX_HOLD_SECONDS = 300;
export const LongWait = {
  wait: Type.Optional(Type.Number({ minimum: 0, maximum: MAX_HOLD_SECONDS, description: 'seconds to hold the request' })),
};
export const Wait = { wait: Type.Optional(Type.Number({ minimum: 0, maximum: 60, description: 'seconds to hold the request' })) };
