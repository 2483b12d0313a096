/** Fields of logs, metrics and exits that name an instance, and the filter by these fields. */
import { type Static, Type } from 'typebox';
import { Id } from './vocabulary.ts';

/** Maximum length of the name of a process. */
const MAX_PROCESS = 20;
const MAX_NUMBER = 1_000;

/** The fields of an answer. A control plane before version 0.2.0 does not send them. */
export const INSTANCE_FIELDS = {
  process: Type.Optional(Type.String({ description: 'name of its process' })),
  instance: Type.Optional(Type.Integer({ description: 'number of its instance, from 1' })),
};

/** The instance that the labels of a container name. */
export const LabelledInstance = Type.Object(
  {
    id: Id,
    process: Type.String({ minLength: 1, maxLength: MAX_PROCESS }),
    number: Type.Integer({ minimum: 1, maximum: MAX_NUMBER }),
  },
  { description: 'absent: the container has no labels of an instance' },
);
export type LabelledInstance = Static<typeof LabelledInstance>;

export const INSTANCE_QUERY = {
  process: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: MAX_PROCESS,
      description: 'only this process; 422 if the project has no such process',
    }),
  ),
  instance: Type.Optional(
    Type.Integer({
      minimum: 1,
      maximum: MAX_NUMBER,
      description: 'only the instances with this number',
    }),
  ),
};
export type InstanceQuery = { process?: string; instance?: number };
