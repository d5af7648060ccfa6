//! Features of network interfaces (the `SIOCETHTOOL` ioctl, linux/ethtool.h). Reading them needs no privilege.
#![expect(unsafe_code, reason = "an ioctl that no library wraps")]

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// Which of the features that are named are on at this interface. A feature that the kernel does not know is off.
///
/// # Errors
/// What the kernel says: EOPNOTSUPP for an interface without ethtool, ENODEV when it is gone.
pub fn features_on<'a>(interface: &CStr, names: &[&'a str]) -> io::Result<Vec<&'a str>> {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None)?;
    let ioctl = Ioctl { socket: socket.as_fd(), interface };
    let count = ioctl.feature_count()?;
    let known = ioctl.feature_names(count)?;
    let active = ioctl.active_features(count)?;
    let is_on = |name: &str| {
        known
            .iter()
            .position(|known| known == name)
            .is_some_and(|at| active.get(at / 32).is_some_and(|block| block >> (at % 32) & 1 == 1))
    };
    Ok(names.iter().copied().filter(|name| is_on(name)).collect())
}

struct Ioctl<'a> {
    socket: BorrowedFd<'a>,
    interface: &'a CStr,
}

impl Ioctl<'_> {
    /// struct ethtool_sset_info: cmd, reserved, a mask of 64 bits, then one count per bit that the kernel left set.
    fn feature_count(&self) -> io::Result<usize> {
        let mut buffer = [ETHTOOL_GSSET_INFO, 0, 0, 0, 0];
        let mask = (1u64 << ETH_SS_FEATURES).to_ne_bytes();
        buffer[2] = u32::from_ne_bytes([mask[0], mask[1], mask[2], mask[3]]);
        buffer[3] = u32::from_ne_bytes([mask[4], mask[5], mask[6], mask[7]]);
        let asked = (buffer[2], buffer[3]);
        self.call(&mut buffer)?;
        let count = usize::try_from(buffer[4]).unwrap_or(usize::MAX);
        if (buffer[2], buffer[3]) != asked || count > MAX_FEATURES {
            return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        }
        Ok(count)
    }

    /// struct ethtool_gstrings: cmd, string set, count, then 32 bytes each.
    fn feature_names(&self, count: usize) -> io::Result<Vec<String>> {
        let words = GSTRING_LEN / 4;
        let mut buffer = vec![0; 3 + count * words];
        buffer[..3].copy_from_slice(&[ETHTOOL_GSTRINGS, ETH_SS_FEATURES, u32::try_from(count).unwrap_or_default()]);
        self.call(&mut buffer)?;
        let name = |words: &[u32]| {
            let bytes: Vec<u8> =
                words.iter().flat_map(|word| word.to_ne_bytes()).take_while(|byte| *byte != 0).collect();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        Ok(buffer[3..].chunks(words).map(name).collect())
    }

    /// struct ethtool_gfeatures: cmd, number of blocks, then per block of 32 features: available, requested, active,
    /// never changed. Only the active ones.
    fn active_features(&self, count: usize) -> io::Result<Vec<u32>> {
        let blocks = count.div_ceil(32);
        let mut buffer = vec![0; 2 + blocks * 4];
        buffer[..2].copy_from_slice(&[ETHTOOL_GFEATURES, u32::try_from(blocks).unwrap_or_default()]);
        self.call(&mut buffer)?;
        Ok(buffer[2..].chunks(4).map(|block| block[2]).collect())
    }

    /// `buffer` begins with the command and has room for all that the command and the counts in it make the kernel write.
    fn call(&self, buffer: &mut [u32]) -> io::Result<()> {
        // SAFETY: all-zero is a valid ifreq, a plain C struct.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        let name = self.interface.to_bytes();
        if name.len() >= request.ifr_name.len() {
            return Err(io::Error::from_raw_os_error(libc::ENODEV));
        }
        for (to, from) in request.ifr_name.iter_mut().zip(name) {
            *to = from.cast_signed() as libc::c_char;
        }
        request.ifr_ifru.ifru_data = buffer.as_mut_ptr().cast();
        // SAFETY: request is a live ifreq with a NUL-terminated name; its data points to a live buffer that is as large
        // as the kernel will write (see above); the descriptor is open for the borrow's time.
        let result = unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETHTOOL_GFEATURES: u32 = 0x3a;
const ETH_SS_FEATURES: u32 = 4;
/// ETH_GSTRING_LEN.
const GSTRING_LEN: usize = 32;
/// Kernels of today know about 64.
const MAX_FEATURES: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    /// "loopback" is a fixed feature of lo that is always on, in every kernel since 2.6.39.
    #[test]
    fn the_features_of_the_loopback_interface_can_be_read() {
        let on = features_on(c"lo", &["loopback", "rx-gro-list", "no-such-feature"]).expect("lo has ethtool");
        assert_eq!(on, ["loopback"]);
    }

    #[test]
    fn an_interface_that_is_not_there_is_an_error() {
        for name in [c"no-such-if", c"a-name-that-no-interface-can-have"] {
            assert_eq!(features_on(name, &[]).expect_err("not there").raw_os_error(), Some(libc::ENODEV));
        }
    }
}
