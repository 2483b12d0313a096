/** Version information, for bug reports and for programs that check the features of a control plane. */
import { Type } from 'typebox';
import { orNull } from './vocabulary.ts';

/** Version of Berth; equal to package.json. */
export const BERTH_VERSION = '0.1.0';
/** Oldest agent version that is tested with this control plane. Contract-only agents send no version. */
export const OLDEST_AGENT = '0.1.0';

export const Version = Type.Object({
  version: Type.String({ description: 'version of Berth' }),
  commit: orNull(Type.String({ description: 'commit of this build; null if unknown' })),
  node: Type.String({ description: 'version of Node.js' }),
  schema: Type.String({ description: 'newest migration that the database has' }),
  oldest_agent: Type.String({ description: 'oldest agent version that works with this control plane' }),
});
