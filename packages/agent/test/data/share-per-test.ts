import { afterEach, beforeEach } from 'vitest';
import { type Share, type Site, type SiteOptions, startShare, startSite } from './share.ts';

/** Gives each test of a file its own share. The agents on the share stop with the test. */
export function sharePerTest(): {
  share: () => Share;
  siteWith: (options?: SiteOptions) => Promise<Site>;
} {
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
