/** What runs: for people who report a fault, and for programs that must know what a control plane can do. */
import { Type } from 'typebox';
import { orNull } from './vocabulary.ts';

/** Of Berth, as package.json says it. */
export const BERTH_VERSION = '0.1.0';
/** Agents older than this are not tested with this control plane. (Those that know the contract alone send no version.) */
export const OLDEST_AGENT = '0.1.0';

export const Version = Type.Object({
  version: Type.String({ description: 'of Berth' }),
  commit: orNull(Type.String({ description: 'that this build was made of; null: nobody said' })),
  node: Type.String({ description: 'version of Node.js' }),
  schema: Type.String({ description: 'newest migration of the database' }),
  oldest_agent: Type.String({ description: 'oldest version of the agent that works with this control plane' }),
});
