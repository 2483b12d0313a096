import { afterEach, beforeEach } from 'vitest';
import { type Share, type Site, type SiteOptions, startShare, startSite } from './share.ts';

/** For a file of tests: a share for each test, and agents on it that end with it. */
export function sharePerTest(): { share: () => Share; siteWith: (options?: SiteOptions) => Promise<Site> } {
  let share: Share;
  const sites: Site[] = [];
  beforeEach(async () => void (share = await startShare()));
  afterEach(async () => {
    for (const site of sites.splice(0)) await site.data.stop();
    await share.stop();
  });
  return {
    share: () => share,
    async siteWith(options = {}) {
      const site = await startSite(share, options);
      sites.push(site);
      return site;
    },
  };
}
